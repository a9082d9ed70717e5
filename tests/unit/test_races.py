# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Two clients at once on one volume, with every interleaving forced.

The first client is stopped at each place where it has read something and has
neither a transaction nor a lock of the database. The second client runs to its end
there. Then the first continues with values that are out of date.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from lunshare.agent.model.errors import Conflict, Exhausted, Invalid, NotFound
from lunshare.agent.model.records import (
    Mode,
    NewAttachment,
    NewSnapshot,
    NewVolume,
    Page,
    Volume,
)
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.stands.node import CTX, Node, host_connector
from tests.stands.waiting import until

EVERY = Page(None, 1000)
BACKENDS = ("here", "there")
START, END = b"the first bytes", b"the last bytes"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("races"), backends=",".join(BACKENDS)).start()
    create = made.services.types.create
    for name in ("plain", "plain too"):
        create(CTX, name)
    create(CTX, "shared", extra_specs={"multiattach": "<is> True"})
    for name in BACKENDS:
        create(CTX, f"plain {name}", extra_specs={"volume_backend_name": name})
    yield made
    made.close()


@dataclass
class Scene:
    """A volume of 1 GiB with a snapshot, if asked for, and what was confirmed."""

    node: Node
    snapped: bool
    volume: Volume = field(init=False)
    snapshot: str = ""
    size: int = 1

    def __post_init__(self) -> None:
        new = NewVolume(1, volume_type="plain here")
        self.volume = self.node.services.volumes.create(CTX, new)
        self.retype("plain")
        held = fake_storage.storage("here")
        held.write(self.volume.id, 0, START)
        held.write(self.volume.id, GIB - 4096, END)
        if self.snapped:
            asked = NewSnapshot(self.volume.id)
            self.snapshot = self.node.services.snapshots.create(CTX, asked).id

    @property
    def id(self) -> str:
        return self.volume.id

    def extend(self, size: int) -> None:
        self.node.services.extender.extend(CTX, self.id, size, in_use=True)
        self.size = max(self.size, size)

    def retype(self, kind: str) -> None:
        self.node.services.migrator.retype(CTX, self.id, kind, on_demand=True)

    def attach(self, host: str) -> None:
        new = NewAttachment(self.id, mode=Mode.RW, connector=host_connector(host))
        self.node.services.attachments.create(CTX, new)

    def migrate(self) -> None:
        host = self.node.services.node.host_of("there")
        self.node.services.migrator.migrate(CTX, self.id, host)

    def attach_two(self) -> None:
        """Retype to a shared volume and back to a plain one: that is refused."""
        self.retype("shared")
        self.attach("a")
        self.attach("b")


Operation = Callable[[Scene], object]

OPERATIONS: dict[str, Operation] = {
    "migrate": Scene.migrate,
    "retype away": lambda s: s.retype("plain there"),
    "retype to shared": lambda s: s.retype("shared"),
    "retype to plain": lambda s: s.retype("plain too"),
    "extend to 3": lambda s: s.extend(3),
    "extend to 2": lambda s: s.extend(2),
    "attach two": Scene.attach_two,
    "attach": lambda s: s.attach("c"),
    "clone": lambda s: s.node.services.volumes.create(
        CTX, NewVolume(None, source_volid=s.id)
    ),
    "snapshot": lambda s: s.node.services.snapshots.create(CTX, NewSnapshot(s.id)),
    "unmanage": lambda s: s.node.services.managed_disks.unmanage(CTX, s.id),
    "delete": lambda s: s.node.services.volumes.delete(CTX, s.id, cascade=True),
}
ON_SNAPSHOTS: dict[str, Operation] = {
    "revert": lambda s: s.node.services.reverter.revert(CTX, s.id, s.snapshot),
    "delete the snapshot": lambda s: s.node.services.snapshots.delete(CTX, s.snapshot),
    "from the snapshot": lambda s: s.node.services.volumes.create(
        CTX, NewVolume(None, snapshot_id=s.snapshot)
    ),
    "extend": lambda s: s.extend(2),
    "delete": lambda s: s.node.services.volumes.delete(CTX, s.id, cascade=True),
}


class Stop:
    """Stops one thread at the n-th place where it has read what others may change.

    That is behind each reading transaction and before each writing one.
    """

    def __init__(self, node: Node, at: int) -> None:
        self.left, self.thread = at, 0
        self.reached, self.go = threading.Event(), threading.Event()
        self._database = node.assembly.database

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """The calling thread is the one."""
        self.thread, database = threading.get_ident(), self._database
        reading, writing = database.reading, database.writing

        @contextlib.contextmanager
        def stop_behind(one_statement: bool = False) -> Iterator[sa.Connection]:
            with reading(one_statement) as connection:
                yield connection
            self._passed()

        @contextlib.contextmanager
        def stop_before() -> Iterator[sa.Connection]:
            self._passed()
            with writing() as connection:
                yield connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "reading", stop_behind)
            patch.setattr(database, "writing", stop_before)
            yield

    def _passed(self) -> None:
        if threading.get_ident() == self.thread:
            self.left -= 1
            if self.left == 0:
                self.reached.set()
                assert self.go.wait(30)


def attempt(operation: Operation, scene: Scene) -> None:
    """An error of the service is not a defect; a crash is."""
    with contextlib.suppress(Invalid, Conflict, NotFound, Exhausted):
        operation(scene)


def stopped_at(node: Node, first: Operation, second: Operation, at: int, **of) -> bool:
    """Whether the first operation has such a place."""
    scene, stop = Scene(node, **of), Stop(node, at)

    def stopping() -> None:
        with stop.here():
            attempt(first, scene)

    with ThreadPoolExecutor(1) as client:
        done = client.submit(stopping)
        until(lambda: stop.reached.is_set() or done.done())
        attempt(second, scene)
        at_rest(node)
        stop.go.set()
        done.result(30)
    at_rest(node)
    assert_right(scene)
    leave(node)
    return stop.reached.is_set()


def at_rest(node: Node) -> None:
    """Nothing is in progress except what a stopped client has not started."""
    steady = {VolumeStatus.AVAILABLE, VolumeStatus.ERROR}

    def rests() -> bool:
        volumes = node.services.volumes.list(CTX, EVERY)
        snapshots = node.services.snapshots.list(CTX, EVERY)
        return all(
            v.own_status in steady and v.stale_backend is None for v in volumes
        ) and all(k.status is SnapshotStatus.AVAILABLE for k in snapshots)

    until(rests, seconds=5)


def assert_right(scene: Scene) -> None:
    node = scene.node
    rows = {v.id: v for v in node.services.volumes.list(CTX, EVERY)}
    there = [
        (name, disk.volume_id, disk.size)
        for name in BACKENDS
        for disk in node.driver(name).disks()
    ]
    assert sorted(there) == sorted(
        (v.backend, v.id, v.size * GIB) for v in rows.values()
    )
    for volume in rows.values():
        held = fake_storage.storage(volume.backend)
        assert held.read(volume.id, 0, len(START)) == START
        assert held.read(volume.id, GIB - 4096, len(END)) == END
    if found := rows.get(scene.id):
        assert found.size >= scene.size
        assert found.multiattach or len(found.attachments) <= 1


def leave(node: Node) -> None:
    for volume in node.services.volumes.list(CTX, EVERY):
        for row in volume.attachments:
            node.services.attachments.delete(CTX, row.id)
        node.services.volumes.delete(CTX, volume.id, cascade=True)
    until(lambda: not node.services.volumes.list(CTX, EVERY))
    for name in BACKENDS:
        held = fake_storage.storage(name)
        held.foreign_disks.clear()
        held.foreign = 0


# The first of each is stopped, the second runs to its end.
PAIRS = (
    ("migrate", "migrate"),
    ("migrate", "retype away"),
    ("migrate", "extend to 3"),
    ("migrate", "clone"),
    ("migrate", "delete"),
    ("retype away", "migrate"),
    ("retype away", "retype away"),
    ("retype away", "retype to shared"),
    ("retype to plain", "attach two"),
    ("retype to plain", "migrate"),
    ("attach", "retype to shared"),
    ("extend to 2", "extend to 3"),
    ("extend to 3", "migrate"),
    ("clone", "migrate"),
    ("clone", "extend to 3"),
    ("clone", "unmanage"),
    ("snapshot", "migrate"),
    ("unmanage", "migrate"),
    ("delete", "migrate"),
)
PAIRS_OF_SNAPSHOTS = (
    ("revert", "from the snapshot"),
    ("revert", "delete the snapshot"),
    ("revert", "extend"),
    ("from the snapshot", "revert"),
    ("from the snapshot", "delete"),
    ("delete the snapshot", "delete"),
    ("extend", "revert"),
)


@pytest.mark.parametrize("names", PAIRS, ids=" beside ".join)
def test_two_clients_of_one_volume(node: Node, names: tuple[str, str]) -> None:
    first, second = (OPERATIONS[name] for name in names)
    at = 1
    while stopped_at(node, first, second, at, snapped=False):
        at += 1


@pytest.mark.parametrize("names", PAIRS_OF_SNAPSHOTS, ids=" beside ".join)
def test_two_clients_of_a_volume_with_a_snapshot(
    node: Node, names: tuple[str, str]
) -> None:
    first, second = (ON_SNAPSHOTS[name] for name in names)
    at = 1
    while stopped_at(node, first, second, at, snapped=True):
        at += 1
