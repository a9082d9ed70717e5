# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume's disk as the kernel's target core holds it: iblock or fileio.

A backstore lives below an HBA directory. Each of ours has its own, because
rtslib and targetcli can read the tree only so; its number follows from the
volume's id, so that nothing has to be searched. A number that is taken (once
in a million at 2,000 volumes) is passed over for the next candidate.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator

from drivers.errors import TargetFailed
from drivers.helper import disks
from drivers.helper.configfs import CORE, drop, make, names, read, write
from drivers.values import Disk, DiskKind

_PLUGINS = {DiskKind.BLOCK: "iblock", DiskKind.FILE: "fileio"}

# The kernel keeps 32 bits of the number. rtslib-fb 2.2 hands out those below
# 2**20, so ours never meet a backstore that targetcli makes.
_FIRST, _END = 2**20, 2**31
_CANDIDATES = 4

# In fileio's info: "File: PATH  Size: 8388608  Mode: O_DSYNC".
_SIZE = re.compile(r"  Size: (\d+)  Mode: ")

#: Attributes of every backstore of ours, against their kernel defaults.
#: emulate_tpws, emulate_3pc: a host with read-only access could change data
#: with WRITE SAME(UNMAP=1) or EXTENDED COPY (measured on 6.1 and 6.12).
_ATTRIBUTES = {"emulate_tpws": "0", "emulate_3pc": "0"}


def path_of(volume_id: str, hba: str) -> str:
    """Where the volume's backstore is, under the HBA it has."""
    return f"{CORE}/{hba}/volume-{volume_id}"


def sound(volume_id: str, disk: Disk, path: str) -> bool:
    """Whether a backstore is the wanted disk under the volume's own identity."""
    return (
        read(path + "/udev_path") == disk.path
        and os.path.basename(os.path.dirname(path)).startswith(_PLUGINS[disk.kind])
        and read(path + "/enable") == "1"
        and read(path + "/wwn/vpd_unit_serial").endswith(f": {volume_id}")
    )


def settled(path: str) -> list[str]:
    """Mend the attributes that keep read-only read-only; return what was wrong."""
    changes = []
    for name, value in _ATTRIBUTES.items():
        if read(f"{path}/attrib/{name}") != value:
            write(f"{path}/attrib/{name}", value)
            changes.append(f"{name} set to {value}")
    return changes


def build(volume_id: str, disk: Disk) -> str:
    """Make the backstore of a checked disk and return its path.

    The disk is opened last but for its identity, which the kernel takes only
    from an open one; nothing can reach it before it is linked to a target.

    :raises OSError: for one, EBUSY when something else holds the disk.
    """
    with disks.opened(disk) as found:
        path = _place(volume_id, _PLUGINS[disk.kind])
        os.mkdir(path)
        if disk.kind is DiskKind.BLOCK:
            write(path + "/control", f"udev_path={found.path}")
        else:
            size = found.stat.st_size
            write(path + "/control", f"fd_dev_name={found.path},fd_dev_size={size}")
        # What it is known by from now on; the kernel only keeps this text.
        write(path + "/udev_path", disk.path)
        write(path + "/enable", "1")
    _identify(volume_id, path)
    settled(path)
    if disk.kind is DiskKind.BLOCK and disks.discards(found.stat):
        write(path + "/attrib/emulate_tpu", "1")
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


def existing(volume_id: str) -> Iterator[str]:
    """Every backstore that carries the volume's name at a place of ours."""
    for plugin in _PLUGINS.values():
        for number in _numbers(volume_id):
            path = path_of(volume_id, f"{plugin}_{number}")
            if os.path.isdir(path):
                yield path


def destroy(path: str) -> None:
    """Remove a backstore that nothing is linked to, and its HBA if it is empty."""
    drop(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _identify(volume_id: str, path: str) -> None:
    """Give the LUN a name of its own that survives everything we do to it.

    VMware tells LUNs apart by the first 8 characters of the product.
    """
    write(path + "/wwn/vendor_id", "lunshare")
    write(path + "/wwn/product_id", volume_id.replace("-", "")[:16])
    write(path + "/wwn/vpd_unit_serial", volume_id)


def _place(volume_id: str, plugin: str) -> str:
    for number in _numbers(volume_id):
        hba = f"{CORE}/{plugin}_{number}"
        if make(hba) or not _occupied(hba):
            return f"{hba}/volume-{volume_id}"
    raise TargetFailed(volume_id, "every HBA number for its backstore is taken")


def _occupied(hba: str) -> bool:
    return any(name not in ("hba_info", "hba_mode") for name in names(hba))


def _numbers(volume_id: str) -> Iterator[int]:
    digest = hashlib.sha256(volume_id.encode()).digest()
    for start in range(0, 4 * _CANDIDATES, 4):
        number = int.from_bytes(digest[start : start + 4], "big")
        yield _FIRST + number % (_END - _FIRST)
