# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of one volume's disk onto another's, for a volume that moves.

Both are disks that an export may open (disks.opened), and nothing else of the node.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any

from drivers.errors import DiskBusy, DriverError, InvalidValue, NoSpace
from drivers.helper import disks, filling, requests
from drivers.helper.filling import Clock
from drivers.helper.locks import Hold, Locks
from drivers.helper.mounts import KERNEL, Mounts
from drivers.values import Disk, DiskKind

_STEP = 1024**2
_ZEROS = bytes(_STEP)

# What O_DIRECT wants of offsets, lengths and memory (open(2)); disks are of as
# many bytes, and what is behind a file's last ones is zeros.
_UNIT = 4096

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Copying:
    """The one verb. A second copy onto the same disk waits for the first."""

    def __init__(self, mounts: Mounts = KERNEL) -> None:
        self._mounts, self._locks = mounts, Locks()

    def copy(self, given: Mapping[str, Any], seconds: float) -> None:
        """Give ``target`` all bytes of ``source``; its own were zeros or these.

        Zeros are passed over, so that a thin disk stays thin. All is on the
        medium when it returns; nobody waits longer than ``seconds``.

        :raises TargetFailed: a disk is not what it should be.
        :raises InvalidValue: ``target`` is smaller.
        :raises NoSpace: its pool is full; it has some of the bytes.
        """
        source, target = requests.two_disks(given)
        medium = os.path.dirname(target.path)
        with self._locks.hold(target.path, seconds, medium) as hold:
            what = f"a copy onto {target.path}"
            hold.patiently(what, _copied, self._mounts, source, target, hold)


def _copied(mounts: Mounts, source: Disk, target: Disk, hold: Hold) -> None:
    clock = hold.clock(f"a copy onto {target.path}")
    try:
        reading, writing = os.O_RDONLY, os.O_RDWR
        with (
            _open(mounts, source, reading) as old,
            _open(mounts, target, writing) as new,
        ):
            size = os.lseek(old, 0, os.SEEK_END)
            if os.lseek(new, 0, os.SEEK_END) < size:
                raise InvalidValue("target", target.path, f"give {size} bytes or more")
            for start, end in _used(source, old, size):
                _part(old, new, start, end, clock)
            os.fsync(new)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise NoSpace(target.path, why) from None
        raise DriverError(f"{source.path} onto {target.path}: {why}") from None


@contextlib.contextmanager
def _open(mounts: Mounts, disk: Disk, flags: int) -> Iterator[int]:
    # LIO writes to a block device past its page cache, which may hold old bytes.
    # O_EXCL: EBUSY if the kernel's target, a file system or LVM has it (open(2)).
    block = os.O_DIRECT | os.O_EXCL if disk.kind is DiskKind.BLOCK else 0
    with disks.opened(disk, mounts) as found:
        file = _opened(disk, found.path, flags | block | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)


def _opened(disk: Disk, path: str, flags: int) -> int:
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise DiskBusy(disk.volume_id, "something on this node has it open") from None


def _used(source: Disk, file: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of the source that are no holes, from unit to unit."""
    if source.kind is DiskKind.BLOCK:
        yield 0, size
        return
    for start, end in filling.data(file, size):
        yield start // _UNIT * _UNIT, end


def _part(old: int, new: int, start: int, end: int, clock: Clock) -> None:
    with mmap.mmap(-1, _STEP) as memory:
        for at in range(start, end, _STEP):
            clock()
            length = min(_STEP, end - at)
            with memoryview(memory)[:length] as room:
                if os.preadv(old, [room], at) != length:
                    raise OSError(errno.EIO, "the source became shorter")
            whole = -(-length // _UNIT) * _UNIT
            memory[length:whole] = bytes(whole - length)
            with memoryview(memory)[:whole] as data:
                if data.tobytes() != _ZEROS[:whole]:
                    os.pwritev(new, [data], at)
