# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A share's server that lies, or changes what is in it, harms nothing of the node.

What a hostile server returns for a system call is simulated.
"""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from lunshare.drivers import migration
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import CopyDiffers, DriverError
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.values import Snapshot
from lunshare.helper import verification
from tests.conformance.directory_shares import Directories
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

SIZE = 2 * MIB


@pytest.mark.parametrize("steps", [0, -4096])
def test_holes_that_do_not_advance_end_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The client of NFS passes on any offset that SEEK returns."""
    (tmp_path / "file").write_bytes(bytes(SIZE))
    lseek, asked = os.lseek, 0

    def lying(file: int, at: int, how: int) -> int:
        nonlocal asked
        asked += 1
        assert asked < 1000
        return max(0, at + steps) if how == os.SEEK_HOLE else lseek(file, at, how)

    monkeypatch.setattr(os, "lseek", lying)
    with (
        (tmp_path / "file").open("rb") as file,
        pytest.raises(OSError, match="its data at"),
    ):
        list(verification.data(file.fileno(), SIZE))


def test_data_before_its_offset_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    asked = 0

    def lying(file: int, at: int, how: int) -> int:
        nonlocal asked
        asked += 1
        assert asked < 1000
        return 0 if how == os.SEEK_DATA else min(at + 4096, SIZE)

    monkeypatch.setattr(os, "lseek", lying)
    with (
        (tmp_path / "file").open("rb") as file,
        pytest.raises(OSError, match="its data at"),
    ):
        list(verification.data(file.fileno(), SIZE))


def test_file_that_is_replaced_while_it_is_managed_gets_no_name(
    driver, files, node, monkeypatch, tmp_path
) -> None:
    (files / "theirs").write_bytes(bytes(SIZE))
    fchmod, other = os.fchmod, tmp_path / "other"
    other.write_bytes(b"x")

    def swapping(file: int, mode: int) -> None:
        fchmod(file, mode)
        (files / "theirs").unlink()
        (files / "theirs").symlink_to(other)

    monkeypatch.setattr(os, "fchmod", swapping)
    with pytest.raises(DriverError, match="another process has replaced theirs"):
        driver.manage(new_volume(SIZE), "theirs")
    assert [each.name for each in files.iterdir()] == ["theirs"]
    assert other.read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["pipe", "volume", "link"])
def test_probe_writes_only_to_its_own_file(
    driver: NfsVolumes, files: Path, kind: str
) -> None:
    """The first bytes of a volume that has this name as well were overwritten."""
    probe, volume = files / ".lunshare-probe", new_volume(SIZE)
    driver.create(volume)
    if kind == "pipe":
        os.mkfifo(probe)
    elif kind == "link":
        probe.symlink_to(volume.name)
    else:
        probe.hardlink_to(files / volume.name)
    with pytest.raises(DriverError, match=r"probe is not a regular file with one name"):
        driver.check()
    assert (files / volume.name).read_bytes() == bytes(SIZE)
    probe.unlink()
    driver.check()


def test_file_that_cannot_be_created_leaves_no_descriptor(
    driver: NfsVolumes, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open one would prevent the umount of a stale share."""

    def refuse(*_given: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(DriverError, match="is stale"):
        driver.create(new_volume(SIZE))
    held = [
        os.readlink(f"/proc/self/fd/{each}")
        for each in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{each}")
    ]
    assert not [each for each in held if each.startswith(str(files))]


@pytest.fixture
def lying(mounts: Directories, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that calls everything after the first MiB a hole, as OpenZFS in 2023."""
    lseek, mounts.local_holes = os.lseek, False

    def lie(file: int, at: int, how: int) -> int:
        if how == os.SEEK_DATA and at >= MIB:
            raise OSError(errno.ENXIO, "only a hole is left")
        return MIB if how == os.SEEK_HOLE else lseek(file, at, how)

    monkeypatch.setattr(os, "lseek", lie)


def test_migration_reads_what_the_server_calls_a_hole(driver, node, lying) -> None:
    """The proof believed the server, too. Then the source was deleted."""
    source, target = (driver.create(new_volume(SIZE)) for _ in range(2))
    Path(source.path).write_bytes(b"x" * SIZE)
    migration.fill(node, target, source, 10)
    assert Path(target.path).read_bytes() == b"x" * SIZE


def test_copy_within_a_share_that_lost_data_to_a_hole_is_noticed(
    build, files, lying
) -> None:
    """Such a copy follows the server's holes; its proof does not."""
    driver, volume = build(nfs_clone=False), new_volume(SIZE)
    driver.create(volume)
    (files / volume.name).write_bytes(b"x" * SIZE)
    with pytest.raises(CopyDiffers):
        driver.create_snapshot(Snapshot(str(uuid.uuid4()), volume.id, SIZE))
    assert driver.snapshots() == ()
