# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attached hosts that send what stops other hosts of the same volume."""

from __future__ import annotations

import contextlib
import struct

import pytest

from tests.system.hostile_host import PORTAL
from tests.system.hosts import Traffic
from tests.system.kernel import faults
from tests.system.lio_checks import ONE, TWO, WRITERS_AT, changed, filled
from tests.system.lio_hosts import BLOCK, Refused, Session
from tests.system.lio_node import Node, initiator
from tests.system.raw_iscsi import FLAGS, WRONG_FLAGS, RawSession
from tests.system.scsi_commands import commands

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_STANDBY, _UNAVAILABLE, _OFFLINE = 2, 3, 14
_KEY, _OTHER = b"writer-a", b"writer-b"
_UNSUPPORTED, _PROTECTED = "05/20/00", "07/27/00"
#: Commands that read blocks, bytes or nothing, and one that writes.
_COMMANDS = {
    "READ(10)": bytes([0x28, *bytes(7), 1, 0]),
    "READ(16)": bytes([0x88, *bytes(12), 1, 0, 0]),
    "INQUIRY": bytes([0x12, 0, 0, 2, 0, 0]),
    "READ CAPACITY(10)": bytes([0x25, *bytes(9)]),
    "TEST UNIT READY": bytes(6),
    "SYNCHRONIZE CACHE(10)": bytes([0x35, *bytes(9)]),
    "an unknown one": bytes([0xFF, *bytes(9)]),
    "WRITE(10)": bytes([0x2A, *bytes(7), 1, 0]),
}


@pytest.mark.parametrize("state", [_STANDBY, _UNAVAILABLE, _OFFLINE])
def test_a_writers_target_port_group_state_stops_nobody(node: Node, state: int) -> None:
    node.apply(a="rw", c="rw", b="ro")
    c, b = node.login("c"), node.login("b")
    for host, answer in (("a", _UNSUPPORTED), ("b", _PROTECTED)):
        with contextlib.closing(RawSession(initiator(host), node.iqn, PORTAL)) as raw:
            assert _set_port_group(raw, state) == answer
    c.write(0, ONE)
    assert b.read(0) == ONE


def test_a_full_apply_opens_a_stopped_port_group(node: Node) -> None:
    """As a version that allowed SET TARGET PORT GROUPS has left it."""
    node.apply(a="rw", b="ro")
    a, b = node.login("a"), node.login("b")
    groups = [store / "alua/default_tg_pt_gp" for store in node.backstores()]
    for group in groups:
        (group / "alua_access_state").write_text(str(_UNAVAILABLE))
        (group / "alua_access_type").write_text("3")
    for lun in (node.group / "lun").iterdir():
        (lun / "alua_tg_pt_offline").write_text("1")
    changes = node.apply(a="rw", b="ro")
    for role in ("writers", "readers"):
        assert f"LUN of the {role} set online" in changes
        assert f"alua_access_type of the {role} set to 1" in changes
        assert f"alua_access_state of the {role} set to 0" in changes
    for session in (a, b):
        _clear_attentions(session)
    a.write(0, TWO)
    assert b.read(0) == TWO
    assert node.apply(a="rw", b="ro") == ()


def test_no_host_reserves_a_volume_of_a_type_without_reservations(node: Node) -> None:
    node.apply(a="rw", c="rw", b="ro")
    c, b = node.login("c"), node.login("b")
    for name, (cdb, data) in commands(node.id).items():
        if "PR OUT" in name or "RESERVE(" in name or "RELEASE(" in name:
            with contextlib.closing(_raw(node, "a")) as raw:
                assert raw.command(cdb, "W" if data else "-", data) == _UNSUPPORTED
    for data in (_named_port(node, "b"), _moved(node, "b")):
        cdb = bytes([0x5F, 0, 0, 0, 0, *len(data).to_bytes(4, "big"), 0])
        with contextlib.closing(_raw(node, "a")) as raw:
            assert raw.command(cdb, "W", data) == _UNSUPPORTED
    c.write(0, ONE)
    assert b.read(0) == ONE
    assert _closes(node, "b", a="rw", c="rw")


def test_a_full_apply_ends_reservations_of_older_versions(node: Node) -> None:
    node.reservations = True
    node.apply(a="rw", c="rw")
    with contextlib.closing(_raw(node, "a")) as raw:
        assert raw.command(*_pr_out(0, bytes(8) + _KEY + bytes(8))) == "GOOD"
        assert raw.command(*_pr_out(1, _KEY + bytes(16), 3)) == "GOOD"
    c = node.login("c")
    with pytest.raises(Refused):
        c.write(0, ONE)
    node.reservations = False
    assert "reservations refused" in node.apply(a="rw", c="rw")
    c.write(0, ONE)


@pytest.mark.parametrize("left", ["a", "ab"])
def test_a_registration_that_was_moved_to_a_reader_ends_with_its_access(
    node: Node, left: str
) -> None:
    """REGISTER AND MOVE of a reservation: kernel-reports/pr-register-and-move.md.

    The reader is detached, or may write from then on.
    """
    node.reservations = True
    node.apply(a="rw", b="ro", c="rw")
    with contextlib.closing(_raw(node, "a")) as raw:
        assert raw.command(*_pr_out(0, bytes(8) + _KEY + bytes(8))) == "GOOD"
        assert raw.command(*_pr_out(1, _KEY + bytes(16), 3)) == "GOOD"
        assert raw.command(*_pr_out(7, _moved(node, "b"))) == "GOOD"
        registered = node.backstore() / "pr/res_pr_registered_i_pts"
        assert initiator("b") in registered.read_text()
        node.apply(**dict.fromkeys(left, "rw"), c="rw")
        assert initiator("b") not in registered.read_text()
        node.login("c").write(0, ONE)
        full_status = bytes([0x5E, 3, 0, 0, 0, 0, 0, 2, 0, 0])
        assert raw.command(full_status, "R", bytes(512)) == "GOOD"
    node.driver.remove(node.id)
    assert not node.backstores()


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_data_that_belongs_to_no_write_harms_nobody(node: Node, mode: str) -> None:
    """One READ with data stopped the kernel: kernel-reports/read-with-data.md."""
    before, found, ended = filled(node), faults(), []
    node.apply(a=mode, c="rw", b="ro")
    (node.acl("a") / "attrib/dataout_timeout").write_text("2")
    with (
        Traffic(node.login("c"), "rw", at=WRITERS_AT, pause=0.02) as writing,
        Traffic(node.login("b"), "ro", pause=0.02) as reading,
    ):
        for name, cdb in _COMMANDS.items():
            for flag in FLAGS | WRONG_FLAGS:
                ended += _sends(node, name, cdb, flag)
            for traffic in (writing, reading):
                traffic.wait_for_progress()
        for traffic in (writing, reading):
            traffic.stop()
    assert next(found) == ""
    ended = [each for each in ended if ", R and data: " in each]
    assert all(each.endswith("Error") or "rejected" in each for each in ended), ended
    if mode == "ro":
        assert changed(node, before) == []
    assert f"{initiator('a')} closed" in node.apply(c="rw", b="ro")


def test_detach_ends_a_session_without_a_connection(node: Node) -> None:
    """Its host has logged out the connection, and has asked to keep the session."""
    for _ in range(4):
        node.apply(a="rw", b="ro")
        with contextlib.closing(_raw(node, "b")) as raw:
            assert raw.answered["DefaultTime2Retain"] == "0"
            raw.close_connection()
        assert _closes(node, "b", a="rw")


def _closes(node: Node, host: str, **modes: str) -> bool:
    """Whether this full apply closes the host's access."""
    return any(
        change.startswith(f"{initiator(host)} closed") for change in node.apply(**modes)
    )


def _sends(node: Node, name: str, cdb: bytes, flag: str) -> list[str]:
    """Send it in sessions of its own: as told, too long, with a Data-Out after."""
    answers, ways = [], [(BLOCK, True), (BLOCK, False), (BLOCK // 2, False)]
    if flag == "W, not final":  # LIO waits for the Data-Out (dataout_timeout)
        del ways[1:]
    for expected, follows in ways:
        with contextlib.closing(_raw(node, "a")) as raw:
            assert raw.answered["ImmediateData"] == "No"
            answer = raw.command(cdb, flag, ONE, expected, follows)
            answers.append(f"{name}, {flag}: {answer}")
            raw.data_out(77, ONE)
    return answers


def _raw(node: Node, host: str) -> RawSession:
    return RawSession(initiator(host), node.iqn, PORTAL)


def _pr_out(action: int, data: bytes, kind: int = 0) -> tuple[bytes, str, bytes]:
    cdb = bytes([0x5F, action, kind, 0, 0, *len(data).to_bytes(4, "big"), 0])
    return cdb, "W", data


def _transport_id(host: str, isid: str = "") -> bytes:
    """The TransportID of an iSCSI initiator device (SPC-4, 7.6.4.6)."""
    name = f"{initiator(host)}{isid}\0".encode()
    name = name.ljust(max(20, -(-len(name) // 4) * 4), b"\0")
    return bytes([0x45 if isid else 5, 0]) + len(name).to_bytes(2, "big") + name


def _named_port(node: Node, host: str, isid: str = "") -> bytes:
    """REGISTER with SPEC_I_PT: also for another host."""
    found = _transport_id(host, isid)
    head = bytes(8) + _KEY + bytes(4) + bytes([8, 0, 0, 0])
    return head + len(found).to_bytes(4, "big") + found


def _moved(node: Node, host: str) -> bytes:
    """REGISTER AND MOVE to another host, at the relative port of the target."""
    found = _transport_id(host)
    port = (node.group / "lun/lun_0/statistics/scsi_port/indx").read_text()
    head = _KEY + _OTHER + bytes([0, 0]) + int(port).to_bytes(2, "big")
    return head + len(found).to_bytes(4, "big") + found


def _clear_attentions(session: Session) -> None:
    for _ in range(4):
        with contextlib.suppress(Refused):
            session.command(bytes(6))


def _set_port_group(session: RawSession, state: int) -> str:
    """SET TARGET PORT GROUPS: the default group, or for offline the first port."""
    number = 1 if state == _OFFLINE else 0
    data = struct.pack(">4xBxH", state, number)
    cdb = bytes([0xA4, 0x0A, *bytes(4), *len(data).to_bytes(4, "big"), 0, 0])
    return session.command(cdb, "W", data)
