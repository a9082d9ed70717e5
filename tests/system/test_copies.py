# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, copies and extends of attached volumes, through the API."""

from __future__ import annotations

import pytest

from lunshare.drivers.values import GIB
from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Host, Traffic, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import BLOCK, READ, Session
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system

_PAUSE_SECONDS = 1.0
_READ_CAPACITY_10 = bytes([0x25, *bytes(9)])  # SBC-4 5.20


@pytest.fixture(params=["lvm", "lvm-thick"])
def kind(request: pytest.FixtureRequest, api: Api) -> str:
    """A type for one backend."""
    return api.shared_type(request.param)


def size(session: Session) -> int:
    """The size that READ CAPACITY(10) returns to a host."""
    answer = session.command(_READ_CAPACITY_10, READ, 8)
    last, length = answer[:4], answer[4:]
    return (int.from_bytes(last, "big") + 1) * int.from_bytes(length, "big")


def first_block(api: Api, who: Host, volume: str) -> bytes:
    """The first block, read by a host that is attached for that."""
    created = api.attach(volume, who, "ro")
    with who.login(created["connection_info"]) as session:
        found = session.read(0)
    assert api.detach(created["id"])[0] == 200
    return found


def test_every_host_sees_the_new_size_in_its_session(
    api: Api, host: MakeHost, kind: str
) -> None:
    volume = api.volume(volume_type=kind)
    rows = {mode: api.attach(volume, host(mode), mode) for mode in ("rw", "ro")}
    writer, reader = (
        host(mode).login(row["connection_info"]) for mode, row in rows.items()
    )
    for row in rows.values():
        api.complete(row["id"])
    writer.write(0, block("before"))
    before = [Live(volume).identity(host(mode).initiator) for mode in rows]
    headers = api.act(volume, {"os-extend": {"new_size": 2}})
    assert headers["Lunshare-Rescan"].startswith("2 attachments; iscsiadm")
    until(lambda: api.status(volume) != "extending")
    assert api.shown(volume)["size"] == 2
    assert size(writer) == size(reader) == 2 * GIB
    end = 2 * GIB // BLOCK - 1
    assert reader.read(end) == bytes(BLOCK)
    writer.write(end, block("beyond the old end"))
    assert reader.read(end) == block("beyond the old end")
    assert reader.read(0) == block("before")
    assert write_protected(reader, end)
    assert [Live(volume).identity(host(mode).initiator) for mode in rows] == before
    for row in rows.values():
        assert api.detach(row["id"])[0] == 200
    api.delete_volume(volume)


def test_copies_show_one_moment_while_a_host_writes(api: Api, host: MakeHost) -> None:
    kind = api.shared_type("lvm")  # thick copies: the kit, with less than a GiB
    volume, writer, third = (
        api.volume(volume_type=kind),
        host("writer"),
        host("third"),
    )
    row = api.attach(volume, writer)
    session = writer.login(row["connection_info"])
    api.complete(row["id"])
    session.write(0, block("first"))
    with Traffic(session, "rw") as traffic:
        snapshot = api.snapshot(volume)
        traffic.wait_for_progress()
        traffic.stop()
    session.write(0, block("second"))
    with Traffic(session, "rw", pause=_PAUSE_SECONDS) as traffic:
        copies = [
            api.volume(volume_type=kind, snapshot_id=snapshot),
            api.volume(volume_type=kind, source_volid=volume),
        ]
        traffic.wait_for_progress()
        traffic.stop()
    session.write(0, block("third"))
    found = [first_block(api, third, each) for each in copies]
    assert found == [block("first"), block("second")]
    assert session.read(0) == block("third")

    api.must("DELETE", f"/v3/attachments/{row['id']}")
    api.act(volume, {"revert": {"snapshot_id": snapshot}})
    until(lambda: api.status(volume) != "reverting")
    assert first_block(api, third, volume) == block("first")
    assert first_block(api, third, copies[1]) == block("second")
    api.delete_snapshot(snapshot)
    for each in (volume, *copies):
        api.delete_volume(each)
