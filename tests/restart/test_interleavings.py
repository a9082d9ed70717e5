# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of one volume at the same time, in every order of their commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from lunshare.agent.model.errors import Conflict, Invalid
from lunshare.agent.model.records import (
    Mode,
    NewAttachment,
    NewSnapshot,
    NewVolume,
    Page,
)
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from tests.restart.interleaving import Found, Order, every_order
from tests.stands.node import CTX, Node, host_connector, initiator
from tests.stands.waiting import until

EVERY = Page(None, 1000)
SHARED = {"multiattach": "<is> True"}
TYPES = {
    "here": {"volume_backend_name": "here"},
    "there": {"volume_backend_name": "there"},
    "plain": {},
    "shared": SHARED,
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(
        tmp_path_factory.mktemp("interleavings"),
        backends="here,there",
        extra="create_wait = 60",  # a client waits for its job, however slow it is
    ).start()
    for name, specs in TYPES.items():
        made.services.types.create(CTX, name, extra_specs=specs)
    yield made
    made.close()


@dataclass
class Scene:
    """One volume of a type, and what its clients do."""

    node: Node
    volume_type: str
    id: str = field(init=False)

    def __post_init__(self) -> None:
        new = NewVolume(1, volume_type="here")
        self.id = self.node.services.volumes.create(CTX, new).id
        self.retype(self.volume_type)

    def retype(self, name: str) -> None:
        self.node.services.migrator.retype(CTX, self.id, name, on_demand=True)

    def attach(self, host: str) -> None:
        new = NewAttachment(self.id, mode=Mode.RW, connector=host_connector(host))
        self.node.services.attachments.create(CTX, new)

    def reserve_and_connect(self, host: str) -> None:
        attachments = self.node.services.attachments
        row = attachments.create(CTX, NewAttachment(self.id))
        attachments.connect(CTX, row.id, host_connector(host))

    def snapshot(self, force: bool) -> None:
        new = NewSnapshot(self.id, in_use=force)
        self.node.services.snapshots.create(CTX, new)

    def extend(self) -> None:
        """As a client before microversion 3.42, which extends no volume in use."""
        self.node.services.extender.extend(CTX, self.id, 2, in_use=False)

    def hosts_with_access(self) -> set[str]:
        """The initiators that a target lets in."""
        return {
            connector.initiator
            for backend in ("here", "there")
            for export in self.node.target(backend).observe()
            if export.volume_id == self.id
            for connector in export.connectors
        }

    def check(self) -> None:
        """What is always so."""
        services = self.node.services
        volume = services.volumes.get(CTX, self.id)
        assert volume.volume_type_id is not None
        its_type = services.types.get(CTX, volume.volume_type_id)
        assert volume.multiattach == its_type.multiattach
        if not volume.multiattach:
            assert len(volume.attachments) <= 1
            assert len(self.hosts_with_access()) <= 1
        if volume.own_status is VolumeStatus.EXTENDING:
            assert volume.attachments == ()

    def check_end(self, hosts: set[str], snapshots: int) -> None:
        """What is so when the clients have ended; these hosts were attached."""
        services = self.node.services
        until(lambda: services.volumes.get(CTX, self.id).stale_backend is None)
        self.check()
        volume = services.volumes.get(CTX, self.id)
        assert volume.own_status is VolumeStatus.AVAILABLE
        assert {row.attached_host for row in volume.attachments} == hosts
        assert self.hosts_with_access() == set(map(initiator, hosts))
        found = services.snapshots.list(CTX, EVERY)
        assert [row.status for row in found] == [SnapshotStatus.AVAILABLE] * snapshots

    def delete(self) -> None:
        services = self.node.services
        for row in services.volumes.get(CTX, self.id).attachments:
            services.attachments.delete(CTX, row.id)
        services.volumes.delete(CTX, self.id, cascade=True)
        until(lambda: not services.volumes.list(CTX, EVERY))


@dataclass(frozen=True)
class Client:
    """One operation, and what there must be when it has succeeded."""

    operation: Callable[[Scene], None]
    host: str = ""
    snapshots: int = 0

    def run(self, scene: Scene) -> str:
        """The status of its answer. An error that is not caught here would be a 500."""
        try:
            self.operation(scene)
        except Invalid:
            return "400"
        except Conflict:
            return "409"
        return "done"


def attach(host: str) -> Client:
    return Client(lambda scene: scene.attach(host), host=host)


def reserve_and_connect(host: str) -> Client:
    return Client(lambda scene: scene.reserve_and_connect(host), host=host)


def retype(name: str) -> Client:
    return Client(lambda scene: scene.retype(name))


def snapshot(force: bool) -> Client:
    return Client(lambda scene: scene.snapshot(force), snapshots=1)


def run_in_every_order(node: Node, volume_type: str, *clients: Client) -> Found:
    """Run these clients on a new volume of this type, once in every order."""

    def run(order: Order) -> tuple[str, ...]:
        scene = Scene(node, volume_type)
        calls = [partial(client.run, scene) for client in clients]
        results = order.run(calls, scene.check)
        pairs = zip(clients, results, strict=True)
        done = [client for client, result in pairs if result == "done"]
        hosts = {client.host for client in done} - {""}
        scene.check_end(hosts, sum(client.snapshots for client in done))
        scene.delete()
        return results

    return every_order(node.assembly.database, run)


@pytest.mark.parametrize("attaches", [attach("a"), reserve_and_connect("a")])
def test_snapshot_beside_an_attach(node: Node, attaches: Client) -> None:
    """Before microversion 3.66 a snapshot of an attached volume needs force."""
    found = run_in_every_order(node, "plain", snapshot(force=False), attaches)
    assert found.results == {("done", "done"), ("400", "done")}
    assert found.orders > 5


def test_forced_snapshot_beside_an_attach(node: Node) -> None:
    found = run_in_every_order(node, "plain", snapshot(force=True), attach("a"))
    assert found.results == {("done", "done")}


def test_two_attaches_beside_a_retype_to_a_shared_volume(node: Node) -> None:
    found = run_in_every_order(
        node, "plain", retype("shared"), attach("a"), attach("b")
    )
    assert found.results == {
        ("done", "done", "done"),
        ("400", "done", "400"),
        ("400", "400", "done"),
    }
    assert found.orders > 20


def test_two_attaches_beside_a_retype_to_a_plain_volume(node: Node) -> None:
    found = run_in_every_order(
        node, "shared", retype("plain"), attach("a"), attach("b")
    )
    assert found.results == {
        ("400", "done", "done"),
        ("done", "done", "400"),
        ("done", "400", "done"),
    }
    assert found.orders > 20


def test_attach_beside_a_retype_that_migrates_a_shared_volume(node: Node) -> None:
    found = run_in_every_order(node, "shared", retype("there"), attach("a"))
    assert found.results == {("400", "done"), ("done", "400"), ("done", "done")}


@pytest.mark.parametrize("attaches", [attach("a"), reserve_and_connect("a")])
def test_extend_beside_an_attach(node: Node, attaches: Client) -> None:
    """Once a host has or gets the volume, such a client may not extend it."""
    found = run_in_every_order(node, "plain", Client(Scene.extend), attaches)
    assert found.results == {("done", "done"), ("400", "done"), ("done", "400")}
    assert found.orders > 5
