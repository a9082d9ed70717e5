# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read-only access against a hostile root on the host, and the features of writers.

On a device and on a file of a share; docs/decisions/0013 explains the two LUNs.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lunshare.drivers.targets.lio import LioTarget
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL, Hostile, table
from tests.system.hosts import Traffic
from tests.system.lio_checks import (
    ONE,
    TWO,
    WRITERS_AT,
    changed,
    filled,
    lose,
    reservation_keys,
    reserve_out,
)
from tests.system.lio_files import FileNode
from tests.system.lio_hosts import BLOCK, WRITE, Refused, Session
from tests.system.lio_node import (
    CONFIGFS,
    SIZE,
    HelperProcess,
    Later,
    Node,
    initiator,
)
from tests.system.nfs_fixtures import server
from tests.system.nfs_server import NfsServer
from tests.system.raw_iscsi import FLAGS, TASK_FUNCTIONS, RawSession
from tests.system.scsi_commands import commands

__all__ = ["server"]
pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_CONFLICT = 0x18
# LIO decides by the flag: without data-out one of these is done as a READ.
_READ_ALL_THE_SAME = {
    *(f"WRITE({length})" for length in (6, 10, 12, 16)),
    "WRITE AND VERIFY(10)",
    "WRITE AND VERIFY(16)",
}
_WERO = 5  # write exclusive, registrants only


@pytest.fixture(params=["device", "file"])
def disk(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A volume on a device, then a volume on a file."""
    if request.param == "device":
        yield request.getfixturevalue("node")
        return
    created = FileNode(
        request.getfixturevalue("helper"),
        request.getfixturevalue("driver"),
        request.getfixturevalue("server"),
    )
    yield created
    created.close()


def test_read_only_host_changes_and_blocks_nothing(
    disk: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command with each flag, and LUN resets, while two writers do I/O."""
    before = filled(disk)
    disk.reservations = True
    disk.apply(a="rw", c="rw", d="rw", b="ro")
    a, c, outsider = (disk.login(host) for host in "acd")
    for session, key in ((a, b"writer-a"), (c, b"writer-c")):
        reserve_out(session, 6, bytes(8) + key)
    reserve_out(a, 1, b"writer-a" + bytes(8), _WERO)
    answers = {}
    with (
        Traffic(a, "rw", at=WRITERS_AT, pause=0.02) as one,
        Traffic(c, "rw", at=WRITERS_AT + 8, pause=0.02) as two,
        contextlib.closing(Hostile(disk)) as hostile,
    ):
        for name, (cdb, data) in commands(disk.id).items():
            for flag in FLAGS:
                answers[name, flag] = hostile.command(cdb, flag, data)
            for traffic in (one, two):
                traffic.wait_for_progress()
        for name in TASK_FUNCTIONS:
            answers[name, "task"] = hostile.task(name)
            for traffic in (one, two):
                traffic.wait_for_progress()
        assert hostile.reads() == "GOOD"
        for traffic in (one, two):
            traffic.stop()
    with capsys.disabled():
        print(table(disk, answers))
    assert changed(disk, before) == []
    good = {each for each, answer in answers.items() if answer == "GOOD"}
    assert good <= {(name, flag) for name in _READ_ALL_THE_SAME for flag in "R-"}
    assert reservation_keys(a) == {b"writer-a", b"writer-c"}
    with pytest.raises(Refused) as conflict:
        outsider.write(WRITERS_AT + 16, ONE)
    assert conflict.value.status == _CONFLICT


def test_writers_have_all_disk_features_beside_a_reader(disk: Node) -> None:
    disk.apply(a="rw", b="ro")
    a, b = disk.login("a"), disk.login("b")
    a.write(0, ONE + TWO)
    _caw(a, 0, ONE, TWO)
    with pytest.raises(Refused):
        _caw(a, 0, ONE, TWO)
    assert b.read(0, 2) == TWO * 2
    a.command(bytes([0x93, 0, *bytes(8), 0, 0, 0, 4, 0, 0]), WRITE, BLOCK, ONE)
    assert b.read(0, 4) == ONE * 4
    a.write(0, TWO)
    with contextlib.closing(RawSession(initiator("a"), disk.iqn, PORTAL)) as raw:
        cdb, copy = commands(disk.id)["EXTENDED COPY LID1"]
        assert raw.command(cdb, "W", copy) == "GOOD"
    assert b.read(0, 2) == TWO * 2
    attributes = disk.backstore() / "attrib"
    discards = not isinstance(disk, FileNode)  # a file has no UNMAP
    for name in ("emulate_tpu", "emulate_tpws"):
        assert (attributes / name).read_text().strip() == str(int(discards))
    if discards:
        cdb, data = commands(disk.id)["UNMAP"]
        a.command(cdb, WRITE, len(data), data)
        a.command(
            bytes([0x93, 8, *bytes(8), 0, 0, 0, 8, 0, 0]), WRITE, BLOCK, bytes(BLOCK)
        )


def test_reader_sees_each_write_at_once(disk: Node) -> None:
    """On both read paths: right after a write, and with a filled page cache."""
    disk.apply(a="rw", b="ro")
    a, b = disk.login("a"), disk.login("b")
    for turn in range(200):
        data = f"{turn:08}".encode() * (BLOCK // 8) * 8
        a.write(turn % 8 * 8, data)
        assert b.read(turn % 8 * 8, 8) == data


def test_exclusive_reservation_does_not_stop_readers(disk: Node) -> None:
    disk.reservations = True
    disk.apply(a="rw", c="rw", b="ro")
    a, c, b = (disk.login(host) for host in "acb")
    a.write(0, ONE)
    reserve_out(a, 6, bytes(8) + b"writer-a")
    reserve_out(a, 1, b"writer-a" + bytes(8), 3)
    with pytest.raises(Refused):
        c.read(0)
    assert b.read(0) == ONE


# iscsi-test-cu

_FAMILIES = ["Pr*", "Reserve6", "CompareAndWrite", "WriteSame1*", "Unmap"]
#: Known failures of LIO; they are the same with one LUN for all (6.1 and 6.12).
_KNOWN = {"CompareAndWrite.Simple", "CompareAndWrite.Miscompare"}
#: The end of a session releases its RESERVE(6). LIO does that after it has answered the
#: logout, and these do not wait for it: both failed once on a busy machine (6.12).
_AFTER_A_SESSION = {"Reserve6.Logout", "Reserve6.ITNexusLoss"}


def test_iscsi_test_cu_finds_nothing_writable(disk: Node) -> None:
    """Two refusals have another sense: 05h/24h, because max_write_same_len=0."""
    disk.apply(a="rw", b="ro")
    output = _run_iscsi_test_cu(disk, "ReadOnly", "b", "b")
    wrong = set(re.findall(r"\[FAILED\] (\w+) failed with wrong sense\.", output))
    assert wrong == {"WRITESAME10", "WRITESAME16"}
    assert output.count("[FAILED]") == len(wrong), output


def test_iscsi_test_cu_finds_what_writers_need(disk: Node) -> None:
    disk.reservations = True
    disk.apply(a="rw", c="rw", b="ro")
    failed = set[str]()
    with Traffic(disk.login("b"), "ro", pause=0.05) as reading:
        for family in _FAMILIES:
            output = _run_iscsi_test_cu(disk, family, "a", "c")
            failed |= _failures(output)
        for late in failed & _AFTER_A_SESSION:
            until(partial(_succeeds, disk, late, "a", "c"))
        reading.wait_for_progress()
        reading.stop()
    assert failed - _AFTER_A_SESSION == _KNOWN


# Which LUN a host has


def test_only_a_reader_of_an_older_version_changes_its_lun(disk: Node) -> None:
    disk.apply(a="rw")
    _older(disk, "b")
    a, b = disk.login("a"), disk.login("b")
    assert disk.live() == {"a": "rw", "b": "rw"}, "write protection is not enough"
    assert disk.apply(a="rw", b="ro")
    assert disk.live() == {"a": "rw", "b": "ro"}
    assert a.alive
    assert not b.alive
    assert _lun(disk, "a") not in ("lun_0", "lun_1")
    assert _lun(disk, "b") == "lun_1"
    assert (disk.backstore() / "attrib/emulate_3pc").read_text().strip() == "1"
    assert disk.login("b").write_protected
    assert disk.apply(a="rw", b="ro") == ()


def test_readers_lun_exists_while_there_are_readers(disk: Node) -> None:
    disk.apply(a="rw")
    assert not (disk.group / "lun/lun_1").exists()
    disk.apply(only="b", b="ro")
    a, b = disk.login("a"), disk.login("b")
    disk.apply(only="c", c="ro")
    assert b.alive
    disk.apply(a="rw")
    assert not (disk.group / "lun/lun_1").exists()
    assert not list(CONFIGFS.glob(f"core/*/{disk.name}-readers"))
    assert a.alive


def test_read_returns_no_other_bytes_while_a_mode_changes(disk: Node) -> None:
    """For an unmapped LUN 0 the kernel answers reads with GOOD and its own memory."""
    before = filled(disk)[:BLOCK]
    disk.apply(a="rw", b="ro")
    seen: set[bytes] = set()

    def reads(session: Session) -> None:
        with contextlib.suppress(Refused):
            while True:
                seen.add(session.read(0))

    for wanted in ({"b": "rw"}, {"b": "ro"}, {}, {"b": "ro"}) * 5:
        reading = Later(reads, disk.login("b")) if disk.live().get("b") else None
        disk.apply(a="rw", **wanted)
        assert reading is None or reading.join() is None
    assert seen == {before}


# Which disk a backstore has


def test_recreated_device_is_exported_anew(node: Node) -> None:
    node.apply(a="rw", b="ro")
    node.login("a").write(0, ONE)
    fresh = node.remade()
    assert node.apply(a="rw", b="ro")
    with open(fresh, "rb") as device:
        assert device.read(BLOCK) == bytes(BLOCK)
    assert node.login("a").read(0) == bytes(BLOCK)
    assert node.login("b").read(0) == bytes(BLOCK)
    assert node.apply(a="rw", b="ro") == ()


def test_replaced_file_is_exported_anew(
    helper: HelperProcess, driver: LioTarget, server: NfsServer
) -> None:
    node = FileNode(helper, driver, server)
    try:
        node.apply(a="rw", b="ro")
        node.login("a").write(0, ONE)
        other = Path(node.disk.path + ".other")
        other.write_bytes(bytes(SIZE))
        os.replace(other, node.disk.path)
        assert node.apply(only="a", a="rw")
        assert node.apply(a="rw", b="ro")
        assert node.login("a").read(0) == bytes(BLOCK)
        assert node.login("b").read(0) == bytes(BLOCK)
    finally:
        node.close()


# Persistent reservations that survive the target


def test_target_restores_registrations_except_of_detached_hosts(
    disk: Node,
) -> None:
    disk.reservations = True
    disk.apply(a="rw", c="rw", d="rw")
    for host in "acd":
        key = f"writer-{host}".encode()
        reserve_out(disk.login(host), 6, bytes(8) + key, lasting=True)
    disk.apply(a="rw", c="rw")  # d is detached
    disk.apply(a="rw", c="rw", d="rw")  # and attached again, without a key
    lose(disk)
    disk.apply(a="rw", d="rw")  # c is detached
    assert reservation_keys(disk.login("a")) == {b"writer-a"}
    disk.apply(a="rw", c="rw", d="rw")
    assert reservation_keys(disk.login("c")) == {b"writer-a"}
    disk.driver.remove(disk.id)
    disk.apply(a="rw")
    assert reservation_keys(disk.login("a")) == set()


def _caw(session: Session, at: int, old: bytes, new: bytes) -> None:
    cdb = bytes([0x89, 0, *at.to_bytes(8, "big"), 0, 0, 0, 1, 0, 0])
    session.command(cdb, WRITE, 2 * BLOCK, old + new)


def _run_iscsi_test_cu(node: Node, family: str, one: str, two: str) -> str:
    url = f"iscsi://{PORTAL}/{node.iqn}/0"
    line = ["iscsi-test-cu", "-n", "-d", "-f", "-i", initiator(one)]
    line += ["-I", initiator(two), "-t", f"SCSI.{family}", url]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert "asserts" in done.stdout, done
    return done.stdout


def _succeeds(node: Node, test: str, one: str, two: str) -> bool:
    return not _failures(_run_iscsi_test_cu(node, test, one, two))


def _failures(output: str) -> set[str]:
    found = re.findall(r"Suite (\w+), Test (\w+) had failures", output)
    return {".".join(each) for each in found}


def _older(node: Node, host: str) -> None:
    """Map a reader as a version with one LUN for all did."""
    acl = node.acl(host)
    (acl / "lun_0").mkdir(parents=True)
    (acl / "lun_0/lun").symlink_to(node.group / "lun/lun_0")
    (acl / "attrib/authentication").write_text("0")
    (acl / "tag").write_text(f"attachment-{host}")
    for name in ("emulate_tpws", "emulate_3pc"):
        (node.backstore() / "attrib" / name).write_text("0")


def _lun(node: Node, host: str) -> str:
    return (node.acl(host) / "lun_0/lun").resolve().name
