# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node does not read what hosts write into volumes.

The volumes contain what the node's udev acts on: a file system with the UUID of the
node's root, a member of an array, and a volume group inside a physical volume.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.values import Snapshot, Volume
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, POOL, build_lvm, fill, group, root

__all__ = ["group", "root"]
pytestmark = pytest.mark.system

SIZE = 16 * MIB
INSIDE = "tenants-group"
LINKS = Path("/dev/disk/by-uuid")


def _root_uuid() -> str:
    return run("findmnt", "-no", "UUID", "/").strip() or str(uuid.uuid4())


def file_system(store: Path) -> None:
    """A file system with the UUID of the node's root."""
    run("mkfs.ext4", "-q", "-F", "-U", _root_uuid(), str(store))


def array_member(store: Path) -> None:
    """md's superblock 1.2 (include/uapi/linux/raid/md_p.h)."""
    head = struct.pack("<4I", 0xA92B4EFC, 1, 0, 0) + uuid.uuid4().bytes
    head += b"lab:0".ljust(32, b"\0") + struct.pack("<QIIQIII", 0, 1, 0, 8192, 0, 1, 0)
    head = head.ljust(128, b"\0") + struct.pack("<QQQ", 2048, 16384, 8)
    with store.open("r+b") as file:
        file.seek(4096)
        file.write(head)


def physical_volume(store: Path) -> None:
    """A complete volume group inside, which could be activated."""
    loop = run("losetup", "--find", "--show", str(store)).strip()
    run("vgcreate", "-qq", "--setautoactivation", "n", INSIDE, loop)
    run("lvcreate", "-qq", "-y", "-an", "-Zn", "-L4m", "-n", "inner", INSIDE)
    run("losetup", "--detach", loop)
    run("pvscan", "--cache")


CONTENTS = {"ext4": file_system, "linux_raid_member": array_member}
CONTENTS |= {"LVM2_member": physical_volume}


@pytest.fixture(params=list(CONTENTS))
def content(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, bytes]:
    store = tmp_path / "store"
    with store.open("wb") as file:
        file.truncate(SIZE)
    CONTENTS[request.param](store)
    return request.param, store.read_bytes()


@pytest.fixture
def foreign() -> Iterator[str]:
    """A foreign logical volume: the node reads it."""
    name = "kit-foreign-bytes"
    run("lvcreate", "-y", f"-V{SIZE}b", "--thin", "-n", name, f"{GROUP}/{POOL}")
    yield name
    run("lvremove", "-y", f"{GROUP}/{name}")


def kinds(name: str) -> set[str]:
    """What udev has read from its bytes, after every event that may read them."""
    path = f"/dev/{GROUP}/{name}"
    run("udevadm", "trigger", "--action=change", "--settle", path)
    run("udevadm", "settle")
    lines = run("udevadm", "info", "--query=property", path).splitlines()
    return {line.partition("=")[2] for line in lines if line.startswith("ID_FS_TYPE=")}


def links(name: str) -> list[Path]:
    """The links to it that are named after its contents."""
    node = os.path.realpath(f"/dev/{GROUP}/{name}")
    return [each for each in LINKS.iterdir() if os.path.realpath(each) == node]


def test_node_does_not_read_what_hosts_write(
    root: Root, content: tuple[str, bytes], foreign: str
) -> None:
    kind, data = content
    fill(foreign, data)
    assert kinds(foreign) == {kind}  # udev reads a foreign one
    fill(foreign, bytes(SIZE))
    kinds(foreign)
    driver = build_lvm(root)
    volume = new_volume(SIZE)
    driver.create(volume)
    fill(volume.name, data)
    copy, snapshot = new_volume(SIZE), _snapshot(volume)
    driver.create_snapshot(snapshot)
    driver.create_from(copy, snapshot)
    run("lvchange", "-an", f"{GROUP}/{copy.name}")
    driver.check()
    for each in (volume, copy):
        assert kinds(each.name) == set()
        assert links(each.name) == []
    assert INSIDE not in run("vgs", "--noheadings", "-o", "vg_name").split()
    assert driver.disk(volume.id).size == SIZE
    driver.unmanage(copy.id)
    unmanaged = f"unmanaged-{copy.id}"
    assert kinds(unmanaged) == set()
    assert links(unmanaged) == []
    run("lvremove", "-y", f"{GROUP}/{unmanaged}")
    driver.delete(volume.id)
    driver.delete_snapshot(snapshot.id)


def _snapshot(volume: Volume) -> Snapshot:
    return Snapshot(new_volume(MIB).id, volume.id, volume.size)
