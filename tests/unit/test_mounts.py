# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which shares are mounted according to the kernel, and which paths root may enter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lunshare.drivers.protocol import nfs_names
from lunshare.drivers.values import GIB
from lunshare.helper import mounts
from lunshare.helper.mounts import Mount, Mounts


def test_a_line_of_the_kernels_table() -> None:
    line = (
        rb"90 28 0:55 / /run/lunshare/mnt/a\040b rw,nosuid shared:9 master:1 - nfs4"
        rb" nas:/srv/with\040blank rw,vers=4.2,addr=192.0.2.1"
    )
    device = os.makedev(0, 55)
    options = "rw,vers=4.2,addr=192.0.2.1"
    source = "nas:/srv/with blank"
    wanted = Mount("/run/lunshare/mnt/a b", device, "nfs4", source, options)
    assert mounts.parse_line(line) == wanted
    bare = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    root = Mount("/", os.makedev(8, 1), "ext4", "/dev/sda1", "rw")
    assert mounts.parse_line(bare) == root


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ("rw,vers=4.2,local_lock=none,addr=192.0.2.1", False),
        ("rw,vers=3,nolock,local_lock=all", True),
        ("rw,vers=3,local_lock=posix", True),
        ("rw,vers=3,local_lock=flock,addr=192.0.2.1", True),
        ("rw,vers=3,lock,local_lock=none", False),
    ],
)
def test_mount_that_hides_locks_is_recognized(options: str, hides: bool) -> None:
    assert Mount("/mnt", 1, "nfs", "nas:/a", options).hides_locks is hides


def test_kind_that_is_not_utf8_is_another_file_system() -> None:
    """Any user gives its FUSE mount a subtype, and broke every share with it."""
    line = b"90 28 0:55 / /home/a/x rw - fuse.\xff a\xfe rw,user_id=1000\n"
    assert mounts.parse_line(line).kind not in ("nfs", "nfs4")


def test_only_nfs_is_a_share() -> None:
    assert Mounts().find("/") is None
    assert Mounts().find("/proc") is None
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        assert mounts.parse_line(line).point.startswith("/")


def test_directory_on_another_device_is_not_opened(tmp_path: Path) -> None:
    """The share was unmounted meanwhile. Nothing is written below its mount point."""
    device = tmp_path.stat().st_dev
    with Mounts().enter(Mount(str(tmp_path), device, "nfs4", "nas:/a")) as share:
        assert os.fstat(share).st_ino == tmp_path.stat().st_ino
    gone = Mount(str(tmp_path), device + 1, "nfs4", "nas:/a")
    with pytest.raises(FileNotFoundError), Mounts().enter(gone):
        pass


@pytest.mark.parametrize("path", ["mnt", "/tmp/../etc", "/tmp//x", "/tmp/", ""])
def test_path_that_is_not_plain_is_not_opened(path: str) -> None:
    with pytest.raises(OSError):
        os.close(mounts.open_directory(path))


def test_link_to_a_directory_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "real" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.close(mounts.open_directory(str(tmp_path / "real" / "in")))
    for path in (tmp_path / "link", tmp_path / "link" / "in"):
        with pytest.raises(OSError):
            os.close(mounts.open_directory(str(path)))


@pytest.mark.parametrize(("free", "full"), [(0, True), (19, True), (20, False)])
def test_a_pool_is_nearly_full_below_two_per_cent(free: int, full: bool) -> None:
    assert nfs_names.nearly_full(1000, free) is full


def test_ten_gib_are_enough_for_any_pool() -> None:
    assert nfs_names.nearly_full(10**15, 10 * GIB - 1)
    assert not nfs_names.nearly_full(10**15, 10 * GIB)
