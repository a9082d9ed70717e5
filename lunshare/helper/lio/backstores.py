# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume's disk in the kernel's target core: one backstore, or two.

Hosts that may write use the writers' backstore. Hosts that may only read use a second
one, in which every command that changes or reserves something is disabled
(docs/decisions/0013). A block device is iblock for writers and fileio with O_DIRECT
for readers. A file is fileio for both, over one page cache.

A backstore is below an HBA directory. Each backstore of lunshare has an HBA of its
own, because rtslib and targetcli can read the tree only then. The HBA's number is
computed from the volume's id, so that nothing has to be searched. If a number is in
use (once in a million at 2,000 volumes), the next candidate is used.
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
from lunshare.drivers.values import Disk, DiskKind, Mode
from lunshare.helper import disk_paths
from lunshare.helper.lio.configfs import (
    CORE,
    create_object,
    names,
    read,
    read_or_empty,
    remove_object,
    write,
    write_if_different,
)


class Role(enum.StrEnum):
    """Which hosts a backstore is for."""

    WRITERS = "writers"
    READERS = "readers"


#: Which backstore the hosts of each mode use.
ROLES = {Mode.RW: Role.WRITERS, Mode.RO: Role.READERS}

_PLUGINS = {
    (DiskKind.BLOCK, Role.WRITERS): "iblock",
    (DiskKind.BLOCK, Role.READERS): "fileio",
    (DiskKind.FILE, Role.WRITERS): "fileio",
    (DiskKind.FILE, Role.READERS): "fileio",
}
_SUFFIXES = {Role.WRITERS: "", Role.READERS: "-readers"}

# The kernel stores 32 bits of the number. rtslib-fb 2.2 allocates those below 2**20,
# so there is never a conflict with a backstore that targetcli creates.
FIRST, _END = 2**20, 2**31
_CANDIDATES = 4

# In fileio's info: "File: PATH  Size: 8388608  Mode: O_DSYNC".
_SIZE = re.compile(r"  Size: (\d+)  Mode: ")
# In iblock's info: "Major: 253 Minor: 3  CLAIMED: IBLOCK".
_NUMBERS = re.compile(r"Major: (\d+) Minor: (\d+) ")

# write_protect of a mapped LUN refuses WRITE, and allows commands without data from
# the host: WRITE SAME with the iSCSI R flag, WRITE SAME(UNMAP=1), RESERVE(6), EXTENDED
# COPY with this LUN as its destination (measured on 6.1 and 6.12).
_CLOSED = {
    "attrib/emulate_tpws": "0",
    "attrib/emulate_3pc": "0",
    "attrib/max_write_same_len": "0",
    "attrib/emulate_pr": "0",
    "attrib/emulate_caw": "0",
    "attrib/emulate_tpu": "0",
}
# A version without the readers' backstore disabled emulate_3pc and emulate_tpws.
_OPEN = {"attrib/emulate_3pc": "1", "attrib/emulate_caw": "1"}
# With the kernel's default access type, 3, one host's SET TARGET PORT GROUPS stops all
# hosts of the backstore (02h/04h/0Bh or 0Ch), also after it is gone (6.1 and 6.12). 1
# refuses the command (05h/20h/00h) and lets only configfs change the state, where 0 is
# active/optimized. The type comes first: the kernel accepts a state only with it.
_ALUA = {
    "alua/default_tg_pt_gp/alua_access_type": ("1", "Implicit"),
    "alua/default_tg_pt_gp/alua_access_state": ("0", "0"),
}


def name_of(volume_id: str, role: Role, prefix: str = "") -> str:
    """Return the name of a backstore; rtslib requires that each name is unique.

    ``prefix`` is that of targets which are taken over from Cinder's LVM driver, and may
    be given back to it: it finds the backstore of a target by the target's name.
    """
    return f"{prefix}volume-{volume_id}{_SUFFIXES[role]}"


def disk_identity(found: os.stat_result) -> str:
    """Identify a disk independently of its path: by a device's or a file's numbers.

    The numbers of a device that LIO has open do not change, nor those of a mounted
    file system. Another disk that gets the same path has other numbers.
    """
    device = found.st_rdev or found.st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    return numbers if found.st_rdev else f"{numbers} {found.st_ino}"


def live_identity(path: str) -> str:
    """Return the identity of the disk that a backstore has open; empty when unknown.

    iblock shows it. For fileio the kernel shows only the path that it got. So
    ``create`` writes it into the backstore's alias, a text that the kernel stores.
    """
    return live_device(path) or stated_identity(path)


def stated_identity(path: str) -> str:
    """Return the identity that ``create`` has written; empty when there is none."""
    return read_or_empty(path + "/alias")


def live_device(path: str) -> str:
    """Return the numbers of the device that iblock has open; empty without one."""
    match = _NUMBERS.search(read_or_empty(path + "/info"))
    return f"{match[1]}:{match[2]}" if match else ""


def has_disk(path: str, wanted: str) -> bool:
    """Whether a backstore has the disk of that identity open.

    ``create`` has compared the alias with what the kernel shows. True for a file whose
    backstore was created by a version that wrote no identity.
    """
    if stated_identity(path) == wanted:
        return True
    live = live_identity(path)
    return live == wanted or (not live and read_or_empty(path + "/udev_path") != "")


def is_correct(path: str, serial: str, disk: Disk, role: Role, wanted: str) -> bool:
    """Whether a backstore is the wanted disk under this serial number."""
    plugin = _PLUGINS[disk.kind, role]
    return (
        has_disk(path, wanted)
        and os.path.basename(os.path.dirname(path)).startswith(plugin)
        and read(path + "/enable") == "1"
        and serial_of(path) == serial
    )


def serial_of(path: str) -> str:
    """Return the serial number that hosts see."""
    return read(path + "/wwn/vpd_unit_serial").rpartition(": ")[2]


def differing(path: str, disk: Disk, role: Role) -> Iterator[tuple[str, str]]:
    """Yield each attribute that a live backstore has otherwise, and its value."""
    values = {name: (value, value) for name, value in _attributes(path, role).items()}
    values |= _ALUA | {"udev_path": (disk.path, disk.path)}
    for name, (value, shown) in values.items():
        if read(f"{path}/{name}") != shown:
            yield name, value


def repair(path: str, disk: Disk, role: Role) -> list[str]:
    """Correct the attributes of a live backstore; return the changes."""
    changes = []
    for name, value in differing(path, disk, role):
        write(f"{path}/{name}", value)
        changes.append(f"{os.path.basename(name)} of the {role} set to {value}")
    return changes


def set_reservations(path: str, allowed: bool) -> list[str]:
    """Let the hosts of the writers' backstore reserve it, or not; return the changes.

    It is for a new backstore and for a live one. Reservations that hosts have are not
    enforced while they are not allowed.
    """
    if not write_if_different(path + "/attrib/emulate_pr", str(int(allowed))):
        return []
    return [f"reservations {'allowed' if allowed else 'refused'}"]


def create(disk: Disk, role: Role, prefix: str = "", like: str = "") -> str:
    """Create a backstore of a checked disk and return its path.

    ``like`` is a backstore whose SCSI identity it gets; else it is the volume's own.
    ``prefix`` as in ``name_of``.

    The kernel accepts the SCSI identity only for an open disk, so it is set after the
    open. No host can reach the disk before the backstore is linked to a target.

    :raises OSError: for example EBUSY, when another user has the disk open.
    """
    with (
        disk_paths.open_disk(disk) as device,
        _path_for_kernel(disk, role, device) as opened,
    ):
        path = _place(disk, role, prefix)
        os.mkdir(path)
        write(path + "/control", _control(disk, role, opened, device.stat.st_size))
        write(path + "/alias", disk_identity(device.stat))
        # The path to show from now on; the kernel only stores this text.
        write(path + "/udev_path", disk.path)
        write(path + "/enable", "1")
        if _PLUGINS[disk.kind, role] == "fileio":
            _show_path(path, disk)
        if live_identity(path) != disk_identity(device.stat):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), disk.path)
        if disk.kind is DiskKind.BLOCK:  # the kernel has opened it meanwhile
            disk_paths.need_its_device(disk, device.stat)
    _identify(disk.volume_id, path, like)
    if (
        role is Role.WRITERS
        and device.stat.st_rdev
        and disk_paths.supports_discard(device.stat)
    ):
        write(path + "/attrib/emulate_tpu", "1")
    repair(path, disk, role)
    return path


def _show_path(path: str, disk: Disk) -> None:
    """Show the disk's path in fileio's info, not the one that the kernel has opened.

    rtslib takes the size of a device from that path: with /proc/self/fd/7, which is
    another file in each process, ``targetcli saveconfig`` failed for the whole node.
    fd_set_configfs_dev_params stores the text and opens nothing (6.1 and 6.12). It
    ends a value at a comma.
    """
    if "," not in disk.path:
        write(path + "/control", f"fd_dev_name={disk.path}")


def reported_size(path: str) -> int:
    """Return the size in bytes that hosts see of a file."""
    match = _SIZE.search(read(path + "/info"))
    return int(match[1]) if match else 0


def report_size(path: str, size: int) -> None:
    """Set the size that hosts see of a file. The size of a device is always current.

    fileio accepts fd_dev_size for a live backstore and answers READ CAPACITY from it
    (fd_set_configfs_dev_params, fd_get_blocks; tested on 6.1).
    """
    write(path + "/control", f"fd_dev_size={size}")


def existing(volume_id: str, *roles: Role, prefix: str = "") -> Iterator[str]:
    """Yield every backstore of lunshare for the volume.

    With the ``prefix`` of targets, also those that Cinder's LVM driver could remove.
    """
    for role in roles or Role:
        own_names = {name_of(volume_id, role, start) for start in ("", prefix)}
        for plugin in sorted(set(_PLUGINS.values())):
            for number in _numbers(volume_id, role):
                hba = f"{CORE}/{plugin}_{number}"
                for name in sorted(own_names.intersection(names(hba))):
                    yield f"{hba}/{name}"


def is_exported(volume_id: str) -> bool:
    """Whether this node has a backstore of lunshare for the volume."""
    return next(existing(volume_id), None) is not None


def destroy(path: str) -> None:
    """Remove a backstore that is not linked, and its HBA if it is empty."""
    remove_object(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


@contextlib.contextmanager
def _path_for_kernel(disk: Disk, role: Role, found: disk_paths.Found) -> Iterator[str]:
    """Yield the path for the kernel to open. A device in fileio gets a temporary node.

    So fileio opens exactly the device that was checked. And udev does not see it: udev
    probes a device again when a node that was open for writing is closed (its option
    "watch", set for each dm device). That would hold the disk while it is removed
    (lvremove: "in use"), and read the tenants' data.
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
        os.unlink(path)  # from a helper that was killed here
    os.mknod(path, stat.S_IFBLK | 0o600, device)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.unlink(path)


def _control(disk: Disk, role: Role, path: str, size: int) -> str:
    """Return the parameters of the backstore.

    fd_async_io reads with O_DIRECT (4.20 and later), because a device's page cache
    does not have what iblock writes. Both backstores of a file share its page cache,
    and with O_DIRECT some file systems require more than 512 bytes at a time.
    """
    if disk.kind is DiskKind.FILE:
        return f"fd_dev_name={path},fd_dev_size={size}"
    if role is Role.READERS:
        return f"fd_dev_name={path},fd_dev_size={disk.size},fd_async_io=1"
    return f"udev_path={path}"


def _attributes(path: str, role: Role) -> Mapping[str, str]:
    if role is Role.READERS:
        return _CLOSED
    # Both are discards; the kernel detected the device's support when it was opened.
    return _OPEN | {"attrib/emulate_tpws": read(path + "/attrib/emulate_tpu")}


def _identify(volume_id: str, path: str, like: str) -> None:
    """Set the LUN's SCSI identity, which stays the same for the life of the volume.

    Both backstores have the same one. VMware distinguishes LUNs by the first 8
    characters of the product.
    """
    if like:
        for name in ("vendor_id", "product_id"):
            write(f"{path}/wwn/{name}", read(f"{like}/wwn/{name}"))
        write(path + "/wwn/vpd_unit_serial", serial_of(like))
        return
    write(path + "/wwn/vendor_id", "lunshare")
    write(path + "/wwn/product_id", volume_id.replace("-", "")[:16])
    write(path + "/wwn/vpd_unit_serial", volume_id)


def _place(disk: Disk, role: Role, prefix: str) -> str:
    volume_id, plugin = disk.volume_id, _PLUGINS[disk.kind, role]
    for number in _numbers(volume_id, role):
        hba = f"{CORE}/{plugin}_{number}"
        if create_object(hba) or not _is_occupied(hba):
            return f"{hba}/{name_of(volume_id, role, prefix)}"
    raise TargetFailed(volume_id, "every HBA number for its backstore is in use")


def _is_occupied(hba: str) -> bool:
    return any(name not in ("hba_info", "hba_mode") for name in names(hba))


def _numbers(volume_id: str, role: Role) -> Iterator[int]:
    digest = hashlib.sha256(f"{volume_id}{_SUFFIXES[role]}".encode()).digest()
    for start in range(0, 4 * _CANDIDATES, 4):
        number = int.from_bytes(digest[start : start + 4], "big")
        yield FIRST + number % (_END - FIRST)
