# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit bound to NFS volumes, for any share."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.conformance.fixtures import (
    MIB,
    VolumeFixtures,
    defaults,
    open_disk,
)
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from lunshare.drivers.values import Disk, DiskKind, Snapshot, Volume
from tests.conformance.directory_shares import Directories, ShareHelper

_WHOLE = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


class ShareFixtures(VolumeFixtures):
    """One share. ``point`` is its mount point, ``root`` the root helper."""

    options: dict[str, Any] = {}
    share: Share

    @pytest.fixture
    def point(self) -> Path:
        raise NotImplementedError("override `point`: where the share's files are")

    @pytest.fixture
    def build(self, root: Root, point: Path) -> Callable[[], VolumeDriver]:
        options = share_options(self.share, str(point.parent), **self.options)
        return lambda: NfsVolumes("kit", options, root)

    @pytest.fixture
    def misconfigured(self, root: Root) -> VolumeDriver:
        return NfsVolumes("kit", defaults(NfsVolumes), root)

    @pytest.fixture
    def foreign_state(self, point: Path) -> Iterator[Callable[[], object]]:
        theirs = point / "volume-of-another-owner"
        theirs.write_bytes(b"somebody's" * 1000)
        yield lambda: (theirs.read_bytes(), theirs.stat().st_mtime_ns)
        theirs.unlink()

    @pytest.fixture
    def foreign_disk(self, point: Path) -> Iterator[Callable[[bytes], str]]:
        made: list[Path] = []

        def put(data: bytes) -> str:
            made.append(point / f"disk-{uuid.uuid4()}.img")
            with made[-1].open("wb") as file:
                file.write(data)
                file.truncate(self.size)
            return made[-1].name

        yield put
        for path in made:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def held_open(self, driver: VolumeDriver, disk: Disk) -> Iterator[None]:
        """Hold the lock that QEMU holds, which every client of the server sees."""
        with open_disk(disk, os.O_RDWR) as file:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE)
            yield

    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object]:
        base = Path(driver.options["nfs_mount_point_base"])
        path = str(base / self.share.digest / reference)
        return self.held_open(driver, Disk("", path, self.size, DiskKind.FILE))

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """Killed while the file was filled: it has bytes and its temporary name."""
        self._half(driver, volume).write_bytes(b"half" * 1000)

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        self._half(driver, volume).write_bytes(b"half" * 1000)

    def _half(self, driver: VolumeDriver, volume: Volume) -> Path:
        assert isinstance(driver, NfsVolumes)
        base = Path(driver.options["nfs_mount_point_base"])
        return base / self.share.digest / f"{volume.name}.new"


class DirectoryFixtures(ShareFixtures):
    """A plain directory of 64 MiB that cannot clone files."""

    share = Share("nas", "/srv/kit")
    size = 4 * MIB
    # ext4 counts the blocks that list the extents of a file.
    metadata_size = 64 * 1024
    directories: Directories
    options = {"nfs_clone": False}

    @pytest.fixture
    def mounts(self) -> Directories:
        return Directories(64 * MIB)

    @pytest.fixture
    def point(self, tmp_path: Path, mounts: Directories) -> Path:
        path = tmp_path / "mnt" / self.share.digest
        path.mkdir(parents=True)
        mounts.mounted[str(path)] = self.share.source
        self.directories = mounts
        return path

    @contextlib.contextmanager
    def failing_storage(self, driver: VolumeDriver, reads: bool) -> Iterator[None]:
        """The server answers each request with an I/O error, reads or not."""

        def fail(source: str) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        works, self.directories.server = self.directories.server, fail
        yield
        self.directories.server = works

    @pytest.fixture
    def root(self, tmp_path: Path, mounts: Directories) -> Iterator[Root]:
        helper = ShareHelper(tmp_path / "helper.sock", mounts)
        yield helper.client
        helper.end()

    @pytest.fixture
    def full_pool(
        self, mounts: Directories
    ) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            mounts.taken = mounts.total
            yield
            mounts.taken = 0

        return full


def share_options(share: Share, base: str, **given: Any) -> dict[str, Any]:
    """The options of a backend of one share."""
    named = {"nas_host": share.host, "nas_share_path": share.path}
    named |= {"nas_mount_options": share.options, "nfs_mount_point_base": base}
    return defaults(NfsVolumes, **named | given)
