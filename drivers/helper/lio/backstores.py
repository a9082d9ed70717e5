# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume's disk as the kernel's target core holds it: one backstore, or two.

Hosts that may write reach the disk through the writers' backstore. Hosts that may only
read reach it through a second one, whose every command that changes or reserves
something is switched off (docs/decisions/0013). A block device is iblock for writers
and fileio with O_DIRECT for readers; a file is fileio twice, over one page cache.

A backstore lives below an HBA directory. Each of ours has its own, because
rtslib and targetcli can read the tree only so; its number follows from the
volume's id, so that nothing has to be searched. A number that is taken (once
in a million at 2,000 volumes) is passed over for the next candidate.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.helper.lio import disk_paths
from lunshare.drivers.helper.lio.configfs import (
    CORE,
    drop,
    look,
    make,
    names,
    read,
    settle,
    write,
)
from lunshare.drivers.values import Disk, DiskKind, Mode


class Role(enum.StrEnum):
    """Whom a backstore is for."""

    WRITERS = "writers"
    READERS = "readers"


#: Which backstore a host of each mode is given.
ROLES = {Mode.RW: Role.WRITERS, Mode.RO: Role.READERS}

_PLUGINS = {
    (DiskKind.BLOCK, Role.WRITERS): "iblock",
    (DiskKind.BLOCK, Role.READERS): "fileio",
    (DiskKind.FILE, Role.WRITERS): "fileio",
    (DiskKind.FILE, Role.READERS): "fileio",
}
_SUFFIXES = {Role.WRITERS: "", Role.READERS: "-readers"}

# The kernel keeps 32 bits of the number. rtslib-fb 2.2 hands out those below
# 2**20, so ours never meet a backstore that targetcli makes.
_FIRST, _END = 2**20, 2**31
_CANDIDATES = 4

# In fileio's info: "File: PATH  Size: 8388608  Mode: O_DSYNC".
_SIZE = re.compile(r"  Size: (\d+)  Mode: ")
# In iblock's info: "Major: 253 Minor: 3  CLAIMED: IBLOCK".
_NUMBERS = re.compile(r"Major: (\d+) Minor: (\d+) ")

# write_protect of a mapped LUN refuses WRITE, and lets through what carries no data
# out: WRITE SAME with the iSCSI R flag, WRITE SAME(UNMAP=1), RESERVE(6), EXTENDED COPY
# with this LUN as its destination (measured on 6.1 and 6.12).
_CLOSED = {
    "emulate_tpws": "0",
    "emulate_3pc": "0",
    "max_write_same_len": "0",
    "emulate_pr": "0",
    "emulate_caw": "0",
    "emulate_tpu": "0",
}
# A version before the readers' backstore switched emulate_3pc and emulate_tpws off.
_OPEN = {"emulate_3pc": "1", "emulate_pr": "1", "emulate_caw": "1"}


def name_of(volume_id: str, role: Role) -> str:
    """What a backstore is called; rtslib wants a name of its own for each."""
    return f"volume-{volume_id}{_SUFFIXES[role]}"


def identity(found: os.stat_result) -> str:
    """Which disk is meant, whatever its path: a device's numbers, or a file's.

    A device that LIO holds open keeps its numbers, and so does a mounted file
    system; another one that gets the same path has others.
    """
    device = found.st_rdev or found.st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    return numbers if found.st_rdev else f"{numbers} {found.st_ino}"


def held(path: str) -> str:
    """The identity of the disk that a backstore holds open; empty when unknown.

    iblock tells it. Of fileio the kernel tells only the path that it was given, so
    ``build`` leaves it in the backstore's alias, a text that the kernel keeps for us.
    """
    found = _NUMBERS.search(look(path + "/info"))
    return f"{found[1]}:{found[2]}" if found else look(path + "/alias")


def holds(path: str, wanted: str) -> bool:
    """Whether a backstore holds the disk of that identity.

    A file's of a version that left no identity is taken for the wanted one.
    """
    live = held(path)
    return live == wanted or (not live and look(path + "/udev_path") != "")


def sound(path: str, volume_id: str, disk: Disk, role: Role, wanted: str) -> bool:
    """Whether a backstore is the wanted disk under the volume's own identity."""
    plugin = _PLUGINS[disk.kind, role]
    return (
        holds(path, wanted)
        and os.path.basename(os.path.dirname(path)).startswith(plugin)
        and read(path + "/enable") == "1"
        and read(path + "/wwn/vpd_unit_serial").endswith(f": {volume_id}")
    )


def mended(path: str, disk: Disk, role: Role) -> list[str]:
    """Put a live backstore's attributes right; return what was wrong."""
    changes = []
    for name, value in _attributes(path, role).items():
        if settle(f"{path}/attrib/{name}", value):
            changes.append(f"{name} of the {role} set to {value}")
    if settle(path + "/udev_path", disk.path):
        changes.append(f"path of the {role} set to {disk.path}")
    return changes


def build(disk: Disk, role: Role) -> str:
    """Make a backstore of a checked disk and return its path.

    The disk is opened last but for its identity, which the kernel takes only
    from an open one; nothing can reach it before it is linked to a target.

    :raises OSError: for one, EBUSY when something else holds the disk.
    """
    with disk_paths.opened(disk) as found, _openable(disk, role, found) as opened:
        path = _place(disk.volume_id, role, _PLUGINS[disk.kind, role])
        os.mkdir(path)
        write(path + "/control", _control(disk, role, opened, found.stat.st_size))
        write(path + "/alias", identity(found.stat))
        # What it is known by from now on; the kernel only keeps this text.
        write(path + "/udev_path", disk.path)
        write(path + "/enable", "1")
        if held(path) != identity(found.stat):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), disk.path)
    _identify(disk.volume_id, path)
    if role is Role.WRITERS and found.stat.st_rdev and disk_paths.discards(found.stat):
        write(path + "/attrib/emulate_tpu", "1")
    mended(path, disk, role)
    return path


def shows(path: str) -> int:
    """How many bytes of a file hosts are told of."""
    found = _SIZE.search(read(path + "/info"))
    return int(found[1]) if found else 0


def show(path: str, size: int) -> None:
    """Tell hosts of a file's new size. A device tells of its own.

    fileio takes fd_dev_size of a live backstore and answers READ CAPACITY from
    it (fd_set_configfs_dev_params, fd_get_blocks; tried on 6.1).
    """
    write(path + "/control", f"fd_dev_size={size}")


def existing(volume_id: str, *roles: Role) -> Iterator[str]:
    """Every backstore that carries the volume's name at a place of ours."""
    for role in roles or Role:
        for plugin in sorted(set(_PLUGINS.values())):
            for number in _numbers(volume_id, role):
                path = f"{CORE}/{plugin}_{number}/{name_of(volume_id, role)}"
                if os.path.isdir(path):
                    yield path


def destroy(path: str) -> None:
    """Remove a backstore that nothing is linked to, and its HBA if it is empty."""
    drop(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


@contextlib.contextmanager
def _openable(disk: Disk, role: Role, found: disk_paths.Found) -> Iterator[str]:
    """The path for the kernel to open. A device under fileio gets a node of its own.

    So fileio opens the very device that was looked at. And udev, which probes a
    device once more when its node was open for writing and is closed (udev's option
    "watch", set for each dm device), sees nothing: it would hold the disk while it is
    removed (lvremove: "in use"), and read what tenants have on it.
    """
    if disk.kind is DiskKind.FILE or role is Role.WRITERS:
        yield found.path
        return
    device = _node(disk.volume_id, found.stat.st_rdev)
    try:
        yield f"/proc/self/fd/{device}"
    finally:
        os.close(device)


def _node(volume_id: str, device: int) -> int:
    """Open a block device by its numbers."""
    path = f"/dev/.lunshare-{volume_id}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a helper was killed here
    os.mknod(path, stat.S_IFBLK | 0o600, device)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.unlink(path)


def _control(disk: Disk, role: Role, path: str, size: int) -> str:
    """What the kernel makes the backstore of.

    fd_async_io reads with O_DIRECT (4.20 and later): a device's page cache does not
    see what iblock writes. A file's is the one that both of its backstores use, and
    O_DIRECT asks some file systems for more than 512 bytes at a time.
    """
    if disk.kind is DiskKind.FILE:
        return f"fd_dev_name={path},fd_dev_size={size}"
    if role is Role.READERS:
        return f"fd_dev_name={path},fd_dev_size={disk.size},fd_async_io=1"
    return f"udev_path={path}"


def _attributes(path: str, role: Role) -> Mapping[str, str]:
    if role is Role.READERS:
        return _CLOSED
    # Both are discards: what the device can do was found out when it was opened.
    return _OPEN | {"emulate_tpws": read(path + "/attrib/emulate_tpu")}


def _identify(volume_id: str, path: str) -> None:
    """Give the LUN a name of its own that survives everything we do to it.

    Both backstores have the same one. VMware tells LUNs apart by the first 8
    characters of the product.
    """
    write(path + "/wwn/vendor_id", "lunshare")
    write(path + "/wwn/product_id", volume_id.replace("-", "")[:16])
    write(path + "/wwn/vpd_unit_serial", volume_id)


def _place(volume_id: str, role: Role, plugin: str) -> str:
    for number in _numbers(volume_id, role):
        hba = f"{CORE}/{plugin}_{number}"
        if make(hba) or not _occupied(hba):
            return f"{hba}/{name_of(volume_id, role)}"
    raise TargetFailed(volume_id, "every HBA number for its backstore is taken")


def _occupied(hba: str) -> bool:
    return any(name not in ("hba_info", "hba_mode") for name in names(hba))


def _numbers(volume_id: str, role: Role) -> Iterator[int]:
    digest = hashlib.sha256(f"{volume_id}{_SUFFIXES[role]}".encode()).digest()
    for start in range(0, 4 * _CANDIDATES, 4):
        number = int.from_bytes(digest[start : start + 4], "big")
        yield _FIRST + number % (_END - _FIRST)
