# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of volumes that several hosts may have, one test for each."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.calls import Api
from tests.api.test_api_attachments import name
from tests.stands.node import Node, connector, initiator, node_fixture

SHARES = {"multiattach": "<is> True"}


node = node_fixture(backends="one,two")


@pytest.fixture
def api(node: Node) -> Api:
    return Api(node.assembly.app)


def retype(kind: dict[str, Any], policy: str = "never") -> dict[str, Any]:
    return {"os-retype": {"new_type": kind["id"], "migration_policy": policy}}


def other_backend(api: Api, node: Node, volume: dict[str, Any]) -> str:
    here = str(api.shown(volume["id"])["os-vol-host-attr:host"])
    hosts = [node.services.node.host_of(each) for each in ("one", "two")]
    (there,) = [host for host in hosts if host != here]
    return there


def migrate(api: Api, node: Node, volume: dict[str, Any]) -> dict[str, Any]:
    return {"os-migrate_volume": {"host": other_backend(api, node, volume)}}


@pytest.mark.parametrize("spec", ["True", "<is> true", "<is> False", "true"])
def test_only_the_exact_spec_makes_a_volume_shareable(api: Api, spec: str):
    kind = api.type(multiattach=spec)
    answer = api.send(
        "POST", "/volumes", {"volume": {"size": 1, "volume_type": kind["id"]}}
    )
    if answer.status_code == 202:
        assert answer.json["volume"]["multiattach"] is False
    else:
        assert answer.status_code == 400  # no pool has such a value


def test_a_pool_without_the_ability_holds_no_shareable_volume(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
):
    from dataclasses import replace

    kind = api.type(**SHARES)
    abilities = replace(node.driver("one").ABILITIES, multiattach=False)
    monkeypatch.setattr(type(node.driver("one")), "ABILITIES", abilities)
    node.services.node.refresh()
    asked = {"volume": {"size": 1, "volume_type": kind["id"]}}
    created = api("POST", "/volumes", asked, 202)["volume"]
    assert created["status"] == "error"
    assert "multiattach" in api.shown(created["id"])["status_reason"]
    api.volume()


def test_the_request_cannot_make_a_volume_shareable(api: Api):
    asked = {"volume": {"size": 1, "multiattach": True}}
    assert "multiattach" in api.fault(400, "POST", "/volumes", asked)
    assert api.volume(multiattach=False)["multiattach"] is False


def test_no_change_of_a_type_makes_existing_volumes_shareable(api: Api):
    kind = api.type()
    volume = api.volume(volume_type=kind["id"])
    path = f"/types/{kind['id']}/extra_specs"
    assert "in use" in api.fault(400, "POST", path, {"extra_specs": SHARES})
    assert api.shown(volume["id"])["multiattach"] is False


def test_copies_inherit_sharing_from_their_source(api: Api):
    volume = api.shared_volume()
    snapshot = api.snapshot(volume["id"])
    assert api.volume(source_volid=volume["id"])["multiattach"] is True
    assert api.volume(snapshot_id=snapshot["id"])["multiattach"] is True


def test_sharing_changes_by_retype_only_while_nobody_is_attached(api: Api):
    plain, shared = api.type(), api.type(**SHARES)
    volume = api.volume(volume_type=plain["id"])
    made = api.attachment(volume["id"], connector=connector(name()))
    assert "attachments" in api.refused(400, volume["id"], retype(shared))
    shown = api.shown(volume["id"])
    assert (shown["multiattach"], shown["volume_type"]) == (False, plain["name"])
    api("DELETE", f"/attachments/{made['id']}")
    api.act(volume["id"], retype(shared))
    assert api.shown(volume["id"])["multiattach"] is True


def test_a_retype_that_fails_does_not_change_sharing(api: Api, node: Node):
    from lunshare.drivers.errors import NoSpace

    volume = api.volume()
    there = other_backend(api, node, volume).partition("@")[2].partition("#")[0]
    kind = api.type(volume_backend_name=there, **SHARES)
    full = NoSpace(there, "because of the test")
    with node.driver(there).failures.fail("fill.half", full):
        api.refused(413, volume["id"], retype(kind, "on-demand"))
    shown = api.shown(volume["id"])
    assert (shown["multiattach"], shown["status"]) == (False, "available")
    asked = {"attachment": {"volume_uuid": volume["id"]}}
    api("POST", "/attachments", asked)
    api.fault(400, "POST", "/attachments", asked)


def test_several_servers_reserve_a_volume_at_the_same_time(api: Api):
    volume = api.shared_volume()
    servers = [str(uuid.uuid4()) for _ in range(8)]
    with ThreadPoolExecutor(8) as clients:
        made = list(
            clients.map(
                lambda server: api.attachment(volume["id"], instance_uuid=server),
                servers,
            )
        )
    assert {row["instance"] for row in made} == set(servers)
    assert {row["status"] for row in made} == {"reserved"}


def test_one_attaching_host_does_not_hold_up_another(api: Api):
    volume = api.shared_volume()
    first = api.attachment(volume["id"], connector=connector(name()))
    api.attachment(volume["id"])
    second = api.attachment(volume["id"], connector=connector(name()))
    for row in (first, second):
        api.complete(row["id"])
    assert api.shown(volume["id"])["status"] == "in-use"
    api.attachment(volume["id"])  # in-use comes before what others do
    assert api.shown(volume["id"])["status"] == "in-use"


def test_an_attached_volume_is_not_migrated_and_keeps_its_modes(api: Api, node: Node):
    volume = api.shared_volume()
    hosts = {name(): "rw", name(): "rw", name(): "ro"}
    rows = [
        api.attachment(volume["id"], connector=connector(host), mode=mode)["id"]
        for host, mode in hosts.items()
    ]
    backend = str(api.shown(volume["id"])["os-vol-host-attr:host"])
    there = other_backend(api, node, volume).partition("@")[2].partition("#")[0]
    kind = api.type(volume_backend_name=there, **SHARES)
    live = {initiator(host): mode for host, mode in hosts.items()}

    def target() -> dict[str, str | None]:
        name = backend.partition("@")[2].partition("#")[0]
        exports = [
            export
            for export in node.target(name).observe()
            if export.volume_id == volume["id"]
        ]
        return {c.initiator: c.mode for export in exports for c in export.connectors}

    for action in (migrate(api, node, volume), retype(kind, "on-demand")):
        assert "delete those first" in api.refused(400, volume["id"], action)
    assert target() == live
    for row in rows:  # the way down: detach, move, attach again
        api("DELETE", f"/attachments/{row}")
    api.act(volume["id"], migrate(api, node, volume))
    assert api.shown(volume["id"])["os-vol-host-attr:host"] != backend
    assert target() == {}
    for host, mode in hosts.items():
        made = api.attachment(volume["id"], connector=connector(host), mode=mode)
        assert made["attach_mode"] == mode


def test_no_host_attaches_while_a_volume_migrates(api: Api, node: Node):
    volume = api.shared_volume()
    action = migrate(api, node, volume)
    there = other_backend(api, node, volume).partition("@")[2].partition("#")[0]
    with (
        ThreadPoolExecutor(1) as client,
        node.driver(there).failures.hold("fill.half") as gate,
    ):
        done = client.submit(api.act, volume["id"], action)
        assert gate.reached.wait(60)
        assert api.shown(volume["id"])["status"] == "maintenance"
        asked: dict[str, Any] = {"attachment": {"volume_uuid": volume["id"]}}
        assert "maintenance" in api.fault(400, "POST", "/attachments", asked)
        assert "maintenance" in api.refused(400, volume["id"], {"os-reserve": None})
        gate.open.set()
        done.result()
    api.attachment(volume["id"])


def test_a_live_migration_attaches_a_plain_volume_from_its_new_host(
    api: Api, node: Node
):
    volume, server = api.volume(), str(uuid.uuid4())
    old, new = name(), name()
    first = api.attachment(volume["id"], instance_uuid=server, connector=connector(old))
    api.complete(first["id"])
    asked = {"volume_uuid": volume["id"], "connector": connector(name())}
    api.fault(400, "POST", "/attachments", {"attachment": asked})
    other = {**asked, "instance_uuid": str(uuid.uuid4())}
    api.fault(400, "POST", "/attachments", {"attachment": other})
    second = api.attachment(
        volume["id"], instance_uuid=server, connector=connector(new)
    )
    api.complete(second["id"])
    assert api.shown(volume["id"])["status"] == "in-use"
    api("DELETE", f"/attachments/{first['id']}")
    shown = api.shown(volume["id"])
    assert [row["host_name"] for row in shown["attachments"]] == [new]
