# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What does not reach the medium is not reported as done, and no disk is complete.

The kernel reports a write that failed at the next fsync, once. Each flush of each verb
fails in turn. os.fsync and os.fdatasync are replaced, because a kernel without
dm-flakey has no disk that fails so.
"""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import DriverError
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import copying
from lunshare.helper.lio import reservations
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.nfs import contents
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

SIZE = 2 * MIB
OLD = b"old".ljust(SIZE, b".")
NEW, SNAPSHOT = f"volume-{uuid.uuid4()}", f"_snapshot-{uuid.uuid4()}"
PLAIN = {"preallocate": False, "mode": "0600"}


class Flushes:
    """The flushes of this process; one of them can fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.failing, self.done = -1, list[str]()
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, flush: Callable[[int], None]) -> Callable[[int], None]:
        def wrapped(file: int) -> None:
            self.done.append(os.readlink(f"/proc/self/fd/{file}"))
            if len(self.done) == self.failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            flush(file)

        return wrapped

    def fail(self, number: int) -> None:
        """Fail the flush of that number, counted from now."""
        self.failing, self.done = number, []


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    # Small files are flushed as large ones are.
    for module in (contents, copying):
        monkeypatch.setattr(module, "_FLUSHED", MIB // 2)
    # As on a server without ALLOCATE: the space is reserved by writing zeros.
    monkeypatch.setattr(contents, "_fallocate", lambda *_: False)
    return Flushes(monkeypatch)


def copied(**changed: Any) -> dict[str, Any]:
    given = {"name": NEW, "source": SNAPSHOT, "size": 2 * SIZE, **PLAIN}
    return given | {"replace": False, "clone": False} | changed


# Each verb, with its arguments and how many flushes of files it has at least.
REQUESTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "create": ("share.create", {"name": NEW, "size": SIZE, **PLAIN}, 2),
    "preallocate": (
        "share.create",
        {"name": NEW, "size": SIZE, **PLAIN, "preallocate": True},
        3,
    ),
    "copy": ("share.copy", copied(), 5),
    "revert": ("share.copy", copied(replace=True), 5),
    "extend": (
        "share.extend",
        {"name": NEW, "size": 2 * SIZE, "preallocate": False},
        1,
    ),
    "extend, preallocate": (
        "share.extend",
        {"name": NEW, "size": 2 * SIZE, "preallocate": True},
        3,
    ),
    "manage": (
        "share.manage",
        {"name": NEW, "reference": "theirs", "size": 0, "mode": "0660"},
        2,
    ),
}
EXISTING = ("revert", "extend", "extend, preallocate")


@pytest.mark.parametrize("which", REQUESTS)
def test_file_whose_flush_failed_is_not_complete(
    driver, files, node, flushes, which
) -> None:
    verb, given, least = REQUESTS[which]

    def prepare() -> dict[str, bytes]:
        for each in files.iterdir():
            each.unlink()
        (files / SNAPSHOT).write_bytes(b"new".ljust(SIZE, b"."))
        (files / "theirs").write_bytes(b"x" * 1000)
        if which in EXISTING:
            (files / NEW).write_bytes(OLD)
        return {each.name: each.read_bytes() for each in files.iterdir()}

    def ask() -> None:
        node.call(verb, point=str(files), **given)

    prepare()
    flushes.fail(0)
    ask()
    of_files = [each for each in flushes.done if each != str(files)]
    assert len(of_files) >= least
    assert (files / NEW).exists()
    for number in range(1, len(of_files) + 1):
        before = prepare()
        flushes.fail(number)
        with pytest.raises(DriverError, match="Input/output error"):
            ask()
        after = {each.name: each.read_bytes() for each in files.iterdir()}
        if which == "manage":  # a foreign file may have been extended, with zeros
            after["theirs"] = after["theirs"][:1000]
        assert after == before
        flushes.fail(0)
        ask()  # a retry does it


@pytest.mark.parametrize("which", ["create", "copy", "revert", "manage"])
def test_name_that_is_not_on_the_medium_is_an_error(
    driver, files, node, flushes, which
) -> None:
    """The directory is flushed last. What has the name then is complete."""
    verb, given, _ = REQUESTS[which]
    (files / SNAPSHOT).write_bytes(OLD)
    (files / "theirs").write_bytes(b"x" * 1000)
    if which == "revert":
        (files / NEW).write_bytes(OLD)
    given = {"point": str(files), **given}
    flushes.fail(0)
    node.call(verb, **given)
    last = len(flushes.done)
    assert flushes.done[-1] == str(files)
    for name in (NEW, "theirs"):
        (files / name).write_bytes(b"x" * 1000)
    if which != "revert":
        (files / NEW).unlink()
    flushes.fail(last)
    with pytest.raises(DriverError, match="Input/output error"):
        node.call(verb, **given)
    assert len(flushes.done) == last


@pytest.mark.parametrize("verb", ["delete", "unmanage"])
def test_removed_name_that_is_not_on_the_medium_is_an_error(
    driver, files, node, flushes, verb
) -> None:
    volume = new_volume(SIZE)
    driver.create(volume)
    flushes.fail(1)
    with pytest.raises(DriverError, match="Input/output error"):
        node.call(f"share.{verb}", point=str(files), name=volume.name)
    assert flushes.done == [str(files)]


def test_share_that_cannot_flush_a_file_is_unavailable(driver, files, flushes) -> None:
    flushes.fail(1)
    with pytest.raises(DriverError, match="Input/output error"):
        driver.check()
    assert list(files.iterdir()) == []
    driver.check()


# a migration


def test_copy_of_a_disk_whose_flush_failed_is_an_error(tmp_path, node, flushes) -> None:
    mnt = tmp_path / "mnt" / ("0" * 32)
    mnt.mkdir(parents=True)
    node._mounts.mounted[str(mnt)] = "nas:/srv"
    given = {}
    for which in ("source", "target"):
        identity = str(uuid.uuid4())
        path = mnt / f"volume-{identity}"
        path.write_bytes(OLD if which == "source" else bytes(SIZE))
        given[which] = asdict(Disk(identity, str(path), SIZE, DiskKind.FILE))
    target = given["target"]["path"]
    flushes.fail(0)
    node.call("disk.copy", **given)
    number = len(flushes.done)
    assert flushes.done == [target] * number
    assert number >= 3
    for failing in range(1, number + 1):
        flushes.fail(failing)
        with pytest.raises(DriverError, match="Input/output error"):
            node.call("disk.copy", **given)
        assert len(flushes.done) == failing  # nothing is verified or repeated after it


def test_part_of_a_thick_volume_is_flushed_after_its_copy(tmp_path, flushes) -> None:
    """Its device needs LVM; lvm.copy and disk.copy share the loop."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(OLD)
    new.write_bytes(bytes(SIZE))
    with old.open("rb") as source, new.open("r+b") as target:
        both = source.fileno(), target.fileno()
        copying._copy_parts(*both, [(0, SIZE)], lambda done: None, zeros=True)
        number = len(flushes.done)
        assert number >= 3
        for failing in range(1, number + 1):
            flushes.fail(failing)
            with pytest.raises(OSError, match="Input/output error"):
                copying._copy_parts(*both, [(0, SIZE)], lambda done: None, zeros=True)


def test_wiped_disk_whose_flush_failed_is_an_error(
    tmp_path: Path, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the place of the device, so the ioctl is the test's."""

    def zero(file: int, _number: int, where: bytes) -> None:
        start, length = struct.unpack("QQ", where)
        os.pwrite(file, bytes(length), start)

    monkeypatch.setattr(copying, "fcntl", SimpleNamespace(ioctl=zero))
    (tmp_path / "disk").write_bytes(OLD)
    with (tmp_path / "disk").open("r+b") as disk:
        flushes.fail(1)
        with pytest.raises(OSError, match="Input/output error"):
            copying._zero(disk.fileno(), 0, SIZE, lambda done: None)
    assert (tmp_path / "disk").read_bytes() == bytes(SIZE)


# reservations


HOSTS = [f"iqn.1994-05.com.example:host{number}" for number in range(3)]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's file of a volume with a registration of each of HOSTS."""
    (tmp_path / "dbroot").write_text(str(tmp_path))
    (tmp_path / "pr").mkdir()
    monkeypatch.setattr(reservations, "ROOT", str(tmp_path))
    path = tmp_path / "pr" / f"aptpl_{uuid.uuid4()}"
    path.write_text(
        "".join(
            f"PR_REG_START: 0\ninitiator_node={host}\nPR_REG_END: 0\n" for host in HOSTS
        )
    )
    return path


def target_of(saved: Path) -> Target:
    return Target("iqn.2026-11.io.test:", saved.name.removeprefix("aptpl_"))


def test_notes_of_removed_hosts_stay_short(saved: Path) -> None:
    """The kernel does not remove an entry, so each detach would add a line to /etc."""
    target, notes = target_of(saved), Path(f"{saved}.left")
    for _ in range(100):
        for host in HOSTS[:2]:
            reservations.void_saved(target, host)
    assert notes.stat().st_size < 500
    for second in range(1, 100):  # the kernel writes anew
        os.utime(saved, ns=(second * 10**9, second * 10**9))
        reservations.void_saved(target, HOSTS[2])
    assert notes.stat().st_size < 500
    when = saved.stat().st_mtime_ns
    assert reservations._void_hosts(str(saved), when) == {HOSTS[2]}
    reservations.void_saved(target, HOSTS[0])
    assert reservations._void_hosts(str(saved), when) == {HOSTS[0], HOSTS[2]}


def test_incomplete_note_does_not_void_the_next_one(saved: Path) -> None:
    """The power was lost in the middle of a line."""
    when = saved.stat().st_mtime_ns
    Path(f"{saved}.left").write_text(f"{when} {HOSTS[1]}\n{when} {HOSTS[1][:20]}")
    reservations.void_saved(target_of(saved), HOSTS[0])
    found = reservations._void_hosts(str(saved), when)
    assert found >= {HOSTS[0], HOSTS[1]}


def test_lost_note_of_a_removed_host_is_an_error(saved: Path, flushes: Flushes) -> None:
    """Else the keys of a host that was detached would be valid after a power cut."""
    target, host = target_of(saved), HOSTS[0]
    flushes.fail(1)
    with pytest.raises(OSError, match="Input/output error"):
        reservations.void_saved(target, host)
    reservations.void_saved(target, host)
    assert flushes.done == [f"{saved}.left"] * 2
