# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder with lunshare's driver: what its users do, over its own API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lunshare.drivers.values import GIB, Snapshot
from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.api import SHARED
from tests.fleet.stack import THICK, THIN, Stack
from tests.fleet.transcript import modes, say
from tests.stands.waiting import until


def test_three_hosts_have_the_mode_of_their_attachment(
    stack: Stack, client: Client, volume: str
) -> None:
    writer, w_info = api.attach(client, volume, "one", "rw")
    _, r_info = api.attach(client, volume, "two", "ro")
    third, t_info = api.attach_at_once(client, volume, "three", "ro")
    assert modes(stack, volume) == {"one": "rw", "two": "ro", "three": "ro"}
    assert w_info["driver_volume_type"] == "iscsi"
    assert len({each["auth_password"] for each in (w_info, r_info, t_info)}) == 3

    one = stack.host(THIN, api.iqn("one"), w_info)
    two = stack.host(THIN, api.iqn("two"), r_info)
    three = stack.host(THIN, api.iqn("three"), t_info)
    one.write(b"shared")
    for reader in (two, three):
        assert reader.read(6) == b"shared"
        with pytest.raises(PermissionError, match="write-protected"):
            reader.write(b"x")
    with pytest.raises(PermissionError, match="credentials"):
        stack.host(THIN, api.iqn("two"), w_info)
    for name in ("two", "three"):  # not for a moment
        given = f"volume={volume} initiator={api.iqn(name)} mode="
        assert f"{given}ro" in stack.log
        assert f"{given}rw" not in stack.log
    say("rw, ro, ro: writes of the two are refused at the target")

    api.detach(client, writer)
    assert not one.is_alive()
    assert two.is_alive()
    assert three.is_alive()
    api.detach(client, third)
    assert modes(stack, volume) == {"two": "ro"}
    say("detach ends the session of its host only")


def test_attachment_created_with_its_connector_gets_its_mode(
    stack: Stack, client: Client, volume: str
) -> None:
    attachment, info = api.attach_at_once(client, volume, "one", "rw")
    until(lambda: modes(stack, volume) == {"one": "rw"}, "it may write", 90)
    stack.host(THIN, api.iqn("one"), info).write(b"x")
    api.detach(client, attachment)
    assert modes(stack, volume) == {}
    assert volume not in stack.exports(THIN)


def test_two_attachments_of_one_host_share_its_access(
    stack: Stack, client: Client, volume: str
) -> None:
    first, info = api.attach(client, volume, "one", "rw")
    second, _ = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    api.detach(client, first)
    assert session.is_alive()
    session.write(b"x")
    api.detach(client, second)
    assert not session.is_alive()
    assert modes(stack, volume) == {}


def test_front_end_limits_reach_the_host(client: Client) -> None:
    kind, limits = "limited", {"total_iops_sec": "500", "consumer": "front-end"}
    specs = {**SHARED, "volume_backend_name": THIN}
    api.volume_type(client, kind, specs)
    qos = client("POST", "/qos-specs", {"qos_specs": {"name": kind, **limits}})
    (type_id,) = [
        each["id"]
        for each in client("GET", "/types")["volume_types"]
        if each["name"] == kind
    ]
    path = f"/qos-specs/{qos['qos_specs']['id']}/associate"
    client("GET", f"{path}?vol_type_id={type_id}")
    limited = api.create(client, THIN, volume_type=kind)
    attachment, info = api.attach(client, limited, "one", "rw")
    assert info["qos_specs"] == {"total_iops_sec": "500"}
    api.detach(client, attachment)


def test_parallel_detaches_of_one_host_close_its_access(
    stack: Stack, client: Client, volume: str
) -> None:
    for _ in range(3):
        made = [api.attach(client, volume, "one", "rw")[0] for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda each: api.detach(stack.client(), each), made))
        assert modes(stack, volume) == {}


def test_other_mode_for_the_same_host_is_refused(
    stack: Stack, client: Client, volume: str
) -> None:
    api.attach(client, volume, "one", "ro")
    second = api.reserve(client, volume, "rw")
    with pytest.raises(RuntimeError, match="500"):
        api.connect(client, second, "one")
    assert modes(stack, volume) == {"one": "ro"}
    assert "one initiator has one write-protect bit" in stack.log
    api.detach(client, second)
    assert modes(stack, volume) == {"one": "ro"}


def test_writers_policy_decides_for_hosts_without_a_mode(
    stack: Stack, client: Client
) -> None:
    """In the metadata of the volume, which any client of Cinder sets."""
    policy = {"lunshare:writers": "one,two", "lunshare:max_writers": "1"}
    volume = api.create(client, THIN, metadata=policy)
    for host in ("one", "two", "three"):
        api.attach(client, volume, host, None)
    expected = {"one": "rw", "two": "ro", "three": "ro"}
    assert modes(stack, volume) == expected
    refused = api.reserve(client, volume, "rw")
    with pytest.raises(RuntimeError, match="500"):
        api.connect(client, refused, "four")
    assert "by lunshare:writers and lunshare:max_writers" in stack.log
    api.detach(client, refused)
    api.attach_at_once(client, volume, "five", "rw")
    until(lambda: modes(stack, volume) == expected | {"five": "ro"}, "it reads", 90)
    say("a writers policy: rw, ro, ro, refused, ro")


def test_action_gives_a_reader_no_write_access(
    stack: Stack, client: Client, volume: str
) -> None:
    """An action os-initialize_connection has no mode, which means rw."""
    reader, info = api.attach(client, volume, "one", "ro")
    sent = {"connector": api.connector("one")}
    with pytest.raises(RuntimeError):
        api.act(client, volume, "os-initialize_connection", sent)
    assert modes(stack, volume) == {"one": "ro"}
    with pytest.raises(PermissionError):
        stack.host(THIN, api.iqn("one"), info).write(b"x")
    api.detach(client, reader)


def test_attachment_is_not_taken_over_by_a_host_of_the_other_mode(
    stack: Stack, client: Client, volume: str
) -> None:
    writer, _ = api.attach(client, volume, "one", "rw")
    reader, _ = api.attach(client, volume, "two", "ro")
    with pytest.raises(RuntimeError):
        api.connect(client, writer, "two")
    assert modes(stack, volume)["two"] == "ro"
    for each in (writer, reader):
        api.detach(client, each)


@pytest.mark.parametrize(
    ("sent", "missing"),
    [
        ({"host": "one"}, "initiator"),
        ({"host": "one", "initiator": "not-iqn"}, "iSCSI name"),
    ],
)
def test_connector_that_cannot_be_used_is_refused(
    stack: Stack, client: Client, volume: str, sent: Any, missing: str
) -> None:
    attachment = api.reserve(client, volume, "rw")
    body = {"attachment": {"connector": sent}}
    with pytest.raises(RuntimeError, match=f"400 .*{missing}"):
        client("PUT", f"/attachments/{attachment}", body)
    assert volume not in stack.exports(THIN)


@pytest.mark.parametrize("point", ["apply.created", "apply.opened"])
def test_failed_attach_affects_no_other_host(
    stack: Stack, client: Client, volume: str, point: str
) -> None:
    _, info = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    second = api.reserve(client, volume, "rw")
    stack.fail(THIN, point)
    with pytest.raises(RuntimeError, match="500"):
        api.connect(client, second, "two")
    assert session.is_alive()
    session.write(b"x")
    assert modes(stack, volume) == {"one": "rw"}
    api.connect(client, second, "two")
    assert modes(stack, volume) == {"one": "rw", "two": "rw"}


def test_deleted_clone_leaves_no_snapshot_of_a_killed_clone(
    stack: Stack, client: Client, volume: str
) -> None:
    """A version that cloned in three steps may have left one, when it was killed."""
    clone = api.create(client, THIN, source_volid=volume)
    stack.put_snapshot(THIN, Snapshot(clone, volume, GIB))
    assert clone in stack.snapshots(THIN)
    api.delete(client, clone)
    assert clone not in stack.snapshots(THIN)
    api.delete(client, volume)


def test_snapshots_clones_and_extends(stack: Stack, client: Client) -> None:
    volume = api.create(client, THIN)
    attachment, info = api.attach(client, volume, "one", "rw")
    session = stack.host(THIN, api.iqn("one"), info)
    session.write(b"before")
    snapshot = api.snapshot(client, volume)
    session.write(b"after!")

    clone = api.create(client, THIN, source_volid=volume)
    copy = api.create(client, THIN, size=2, snapshot_id=snapshot)
    for made, text in ((clone, b"after!"), (copy, b"before")):
        _, read = api.attach(client, made, "two", "ro")
        assert stack.host(THIN, api.iqn("two"), read).read(6) == text

    api.act(client, volume, "os-extend", {"new_size": 3})
    api.reaches(client, volume, "in-use")
    assert session.is_alive()
    assert session.size == 3 * GIB
    say("extended in use: its host sees 3 GiB")
    api.detach(client, attachment)
    api.reaches(client, volume, "available")

    other = api.create(client, THIN)
    reverted = api.snapshot(client, other)
    attachment, info = api.attach(client, other, "one", "rw")
    stack.host(THIN, api.iqn("one"), info).write(b"lost")
    api.detach(client, attachment)
    api.reaches(client, other, "available")
    api.act(client, other, "revert", {"snapshot_id": reverted})
    api.reaches(client, other, "available")
    _, info = api.attach(client, other, "one", "ro")
    assert stack.host(THIN, api.iqn("one"), info).read(4) == bytes(4)
    say("reverted: the bytes of the snapshot")

    client("DELETE", f"/snapshots/{snapshot}")
    api.gone(client, f"/snapshots/{snapshot}")
    api.delete(client, volume)
    assert volume not in stack.disks(THIN)
    assert {clone, copy} <= stack.disks(THIN)


def test_driver_copies_a_volume_to_another_backend_of_the_node(
    stack: Stack, client: Client
) -> None:
    ours = api.volume_type(client, "ours", {"vendor_name": "lunshare"})
    volume = api.create(client, THIN, volume_type=ours)
    attachment, info = api.attach(client, volume, "one", "rw")
    stack.host(THIN, api.iqn("one"), info).write(b"moved")
    api.detach(client, attachment)
    api.reaches(client, volume, "available")
    body = {"host": f"node@{THICK}#{THICK}", "force_host_copy": False}
    api.act(client, volume, "os-migrate_volume", body)
    until(
        lambda: api.show(client, volume)["migration_status"] == "success",
        "it is migrated",
    )
    until(lambda: volume not in stack.disks(THIN), "the source is deleted")
    assert api.show(client, volume)["os-vol-host-attr:host"] == body["host"]
    assert f"[{THIN}] volume copied: volume={volume} to={THICK}" in stack.log
    attachment, info = api.attach(client, volume, "one", "ro")
    assert stack.host(THICK, api.iqn("one"), info).read(5) == b"moved"

    api.detach(client, attachment)
    api.reaches(client, volume, "available")
    api.delete(client, volume)
    until(lambda: f"[{THICK}] disk wiped: disk=" in stack.log, "its bytes are wiped")


def test_volume_deleted_after_its_migration_leaves_no_disk(
    stack: Stack, client: Client
) -> None:
    ours = api.volume_type(client, "ours", {"vendor_name": "lunshare"})
    volume = api.create(client, THIN, volume_type=ours)
    body = {"host": f"node@{THICK}#{THICK}", "force_host_copy": False}
    api.act(client, volume, "os-migrate_volume", body)
    until(
        lambda: api.show(client, volume)["migration_status"] == "success",
        "it is migrated",
    )
    api.delete(client, volume)  # before the source's node reads where it is now
    until(lambda: volume not in stack.disks(THIN), "the source is deleted", 20)
    assert volume not in stack.disks(THICK)


def test_volume_with_a_connection_is_not_migrated(stack: Stack, client: Client) -> None:
    """Cinder counts attachments only; the host would lose its disk."""
    ours = api.volume_type(client, "ours", {"vendor_name": "lunshare"})
    volume = api.create(client, THIN, volume_type=ours)
    sent = {"connector": api.connector("one")}
    info = api.act(client, volume, "os-initialize_connection", sent)["connection_info"]
    session = stack.host(THIN, api.iqn("one"), info["data"])
    session.write(b"before")
    body = {"host": f"node@{THICK}#{THICK}", "force_host_copy": False}
    api.act(client, volume, "os-migrate_volume", body)
    until(
        lambda: api.show(client, volume)["migration_status"] == "error",
        "the migration has failed",
    )
    assert f"{volume} is in use: a host has it: detach it first" in stack.log
    assert session.read(6) == b"before"
    assert volume not in stack.disks(THICK)
    api.act(client, volume, "os-terminate_connection", sent)
    api.delete(client, volume)


def test_foreign_disks_are_listed_managed_and_unmanaged(
    stack: Stack, client: Client
) -> None:
    stack.put_foreign(THIN, "other", 3 * GIB // 2)
    path = f"/manageable_volumes/detail?host=node@{THIN}%23{THIN}"
    listed = client("GET", path)["manageable-volumes"]
    (found,) = [one for one in listed if one["reference"] == {"source-name": "other"}]
    assert (found["size"], found["safe_to_manage"]) == (2, True)
    body = {"host": f"node@{THIN}#{THIN}", "ref": {"source-name": "other"}}
    made = client("POST", "/manageable_volumes", {"volume": body})["volume"]["id"]
    api.reaches(client, made, "available")
    assert api.show(client, made)["size"] == 2
    _, info = api.attach(client, made, "one", "ro")
    assert stack.host(THIN, api.iqn("one"), info).size == 2 * GIB
    (row,) = client("GET", f"/attachments?volume_id={made}")["attachments"]
    api.detach(client, row["id"])
    api.reaches(client, made, "available")
    api.act(client, made, "os-unmanage", {})
    api.gone(client, f"/volumes/{made}")
    listed = client("GET", path)["manageable-volumes"]
    assert {"source-name": f"unmanaged-{made}"} in [one["reference"] for one in listed]


def test_snapshots_are_unmanaged_and_managed_again(
    stack: Stack, client: Client, volume: str
) -> None:
    snapshot = api.snapshot(client, volume)
    client("POST", f"/snapshots/{snapshot}/action", {"os-unmanage": {}})
    api.gone(client, f"/snapshots/{snapshot}")
    path = f"/manageable_snapshots/detail?host=node@{THIN}%23{THIN}"
    (found,) = [
        one
        for one in client("GET", path)["manageable-snapshots"]
        if snapshot in one["reference"]["source-name"]
    ]
    assert found["source_reference"] == {"source-name": f"volume-{volume}"}
    assert (found["size"], found["safe_to_manage"]) == (1, True)
    body = {"snapshot": {"volume_id": volume, "ref": found["reference"]}}
    made = client("POST", "/manageable_snapshots", body)["snapshot"]["id"]
    until(
        lambda: (
            client("GET", f"/snapshots/{made}")["snapshot"]["status"] == "available"
        ),
        "it is managed",
    )
    api.create(client, THIN, snapshot_id=made)


def test_connections_without_an_attachment_are_closed_again(
    stack: Stack, client: Client, volume: str
) -> None:
    sent = {"connector": api.connector("one")}
    info = api.act(client, volume, "os-initialize_connection", sent)["connection_info"]
    assert info["driver_volume_type"] == "iscsi"
    session = stack.host(THIN, api.iqn("one"), info["data"])
    session.write(b"x")
    api.act(client, volume, "os-terminate_connection", sent)
    assert not session.is_alive()
    assert volume not in stack.exports(THIN)
