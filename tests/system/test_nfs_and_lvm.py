# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of a volume's bytes: from a logical volume to a file on a share, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.values import Disk, DiskKind, Volume
from tests.conformance.nfs_kit import share_options
from tests.system.lvm_kit import build_lvm, group, root
from tests.system.nfs_fixtures import server
from tests.system.nfs_server import BASE, NfsServer

__all__ = ["group", "root", "server"]
pytestmark = pytest.mark.system

SIZE = 16 * MIB


@pytest.fixture
def nfs(root: Root, server: NfsServer) -> NfsVolumes:
    driver = NfsVolumes("test", share_options(server.share, str(BASE)), root)
    driver.check()
    return driver


@pytest.mark.parametrize("lvm_type", ["thin", "default"])
def test_bytes_are_copied_both_ways_and_zeros_use_no_space(
    root: Root, nfs: NfsVolumes, lvm_type: str
) -> None:
    lvm = build_lvm(root, lvm_type=lvm_type)
    volume, data = new_volume(SIZE), os.urandom(3 * MIB + 512)
    first = lvm.create(volume)
    with open(first.path, "r+b") as device:
        device.seek(5 * MIB - 1024)
        device.write(data)
        os.fsync(device.fileno())

    file = _migrated(lvm, nfs, volume)
    assert file.kind is DiskKind.FILE
    assert Path(file.path).stat().st_blocks * 512 < SIZE // 2
    device_again = _migrated(nfs, lvm, volume)
    with open(device_again.path, "rb") as device:
        device.seek(5 * MIB - 1024)
        assert device.read(len(data)) == data
        assert device.read(MIB) == bytes(MIB)
    lvm.delete(volume.id)
    for left in lvm.wipes():
        lvm.wipe(left.name, left.size)


def _migrated(old: VolumeDriver, new: VolumeDriver, volume: Volume) -> Disk:
    new.create(volume)
    new.fill(volume, old.disk(volume.id))
    old.delete(volume.id)
    for left in old.wipes():
        old.wipe(left.name, left.size)
    return new.disk(volume.id)
