# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that use a volume of ``target_driver = nfs``: as a file of a share.

A compute host mounts the share; these hosts use the mount of the node.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB, Host, TargetFixtures
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.share_options import Share
from lunshare.drivers.targets.nfs import NfsTarget
from tests.conformance.directory_shares import Directories, ShareHelper
from tests.conformance.nfs_kit import share_options

SHARE = Share("nas", "/srv/kit")


class FileSession:
    """One host that has the volume's file open."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_RDWR)

    @property
    def serial(self) -> str:
        return self._path.name

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    @property
    def alive(self) -> bool:
        with contextlib.suppress(OSError):
            return len(os.pread(self._file, 1, 0)) == 1
        return False

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        os.pwrite(self._file, data, offset)
        os.fsync(self._file)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)


class ShareHost:
    """One host that may mount the share."""

    def __init__(self, initiator: str) -> None:
        self.initiator = initiator

    def login(self, connection: Mapping[str, Any]) -> FileSession:
        host, _, path = connection["export"].rpartition(":")
        point = Share(host, path).point(connection["mount_point_base"])
        return FileSession(Path(point) / connection["name"])


class ShareTargetFixtures(TargetFixtures):
    """``NfsTarget`` over a plain directory."""

    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        return tmp_path / "mnt"

    @pytest.fixture
    def root(self, tmp_path: Path, base: Path) -> Iterator[Root]:
        mounts, point = Directories(256 * MIB), Path(SHARE.point(str(base)))
        point.mkdir(parents=True)
        mounts.mounted[str(point)] = SHARE.source
        helper = ShareHelper(tmp_path / "helper.sock", mounts)
        yield helper.client
        helper.end()

    @pytest.fixture
    def volumes(self, root: Root, base: Path) -> VolumeDriver:
        return NfsVolumes("kit", share_options(SHARE, str(base)), root)

    @pytest.fixture
    def build(self, root: Root, base: Path) -> Callable[[], TargetDriver]:
        named = {"nas_host": SHARE.host, "nas_share_path": SHARE.path}
        options = {option.dest: option.default for option in NfsTarget.OPTIONS}
        options |= {**named, "nfs_mount_point_base": str(base)}
        return lambda: NfsTarget("kit", options, root)

    @pytest.fixture
    def host(self) -> Callable[[str], Host]:
        return ShareHost

    @pytest.fixture
    def foreign_state(self, base: Path) -> Callable[[], object]:
        theirs = base / "somebody"
        theirs.write_bytes(b"else")
        return theirs.read_bytes
