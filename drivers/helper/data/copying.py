# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of one disk onto another's, and zeros onto one, down to the medium.

For a volume that moves both are disks that an export may open (disk_paths.opened);
LVM's are what a thick volume is made of (extents.opened). Nothing else is opened.

Each copy ends with its proof: both sides are read back and compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lunshare.drivers.errors import DiskBusy, DriverError, InvalidValue, NoSpace
from lunshare.drivers.helper.data import verification
from lunshare.drivers.helper.data.progress import Clock, Long, Report
from lunshare.drivers.helper.data.verification import STEP, ZEROS
from lunshare.drivers.helper.lio import disk_paths, target_requests
from lunshare.drivers.helper.lvm import extents
from lunshare.drivers.helper.named_locks import Hold, Locks
from lunshare.drivers.helper.nfs.mounts import KERNEL, Mounts
from lunshare.drivers.helper.served import Served
from lunshare.drivers.helper.twins import Twins
from lunshare.drivers.values import Disk, DiskKind

# What O_DIRECT wants of offsets, lengths and memory (open(2)); disks are of as
# many bytes, and what is behind a file's last ones is zeros.
_UNIT = 4096

# How much is zeroed at once, at least and at most: the kernel cannot be stopped within
# it, so a device that does it quickly gets more.
_ZEROED, _MOST_ZEROED = 64 * 1024**2, 1024**3
_QUICK_SECONDS = 0.5

# What a flush may have to write: then it takes not much longer than a step.
_FLUSHED = 256 * 1024**2

# linux/fs.h: _IO(0x12, 127), with start and length. The device does it where it can;
# where not, the kernel writes pages of zeros: it always reads back as zeros.
_BLKZEROOUT = 0x127F

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Copying:
    """The verbs. A second one onto the same disk waits for the first."""

    def __init__(
        self, served: Served, mounts: Mounts = KERNEL, twins: Twins | None = None
    ) -> None:
        self._served, self._mounts, self._locks = served, mounts, Locks(twins)

    def verbs(self) -> dict[str, Long]:
        """All that can be asked, by name."""
        return {
            "disk.copy": Long(self.copy),
            "lvm.copy": Long(self.copy_part),
            "lvm.zero": Long(self.zero),
        }

    def copy(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> Any:
        """Give ``target`` all bytes of ``source``; its own were zeros or these.

        Zeros are passed over, so that a thin disk stays thin. When it returns, all
        is on the medium and proven; the answer is the proof. Nobody waits longer than
        ``seconds`` without progress.

        :raises TargetFailed: a disk is not what it should be, or not served.
        :raises InvalidValue: ``target`` is smaller.
        :raises DiskBusy: somebody has one of them open.
        :raises NoSpace: its pool is full; it has some of the bytes.
        :raises CopyDiffers: what is read back is not what ``source`` has.
        """
        source, target = map(self._served.disk, target_requests.two_disks(given))
        return self._do(
            f"the copy of {source.path} onto {target.path}",
            target.path,
            (seconds, report),
            lambda hold, clock: _copied(self._mounts, (source, target), hold, clock),
        )

    def copy_part(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> Any:
        """Give the first ``length`` bytes of one of LVM's to a part of ours, zeros too.

        Raises as ``copy``, and answers with the proof.
        """
        asked = extents.copy(given, self._served)
        return self._do(
            f"the copy of {asked.source} onto {asked.target}",
            asked.target,
            (seconds, report),
            lambda hold, clock: _copied_part(asked, hold, clock),
        )

    def zero(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> int:
        """Zero a part of ours down to the medium; the answer is how many bytes."""
        asked = extents.zero(given, self._served)
        return int(
            self._do(
                f"the zeroing of {asked.device}",
                asked.device,
                (seconds, report),
                lambda hold, clock: _zeroed(asked, hold, clock),
            )
        )

    def _do(
        self,
        what: str,
        path: str,
        limit: tuple[float, Report | None],
        step: Callable[[Hold, Clock], Any],
    ) -> Any:
        answers: list[Any] = []

        def run(hold: Hold) -> None:
            with _told(what, path):
                answers.append(step(hold, hold.clock(what)))

        (seconds, report), medium = limit, os.path.dirname(path)
        with self._locks.hold(path, seconds, medium, report) as hold:
            hold.patiently(what, run, hold)
        return answers[0]


def _copied(
    mounts: Mounts, both: tuple[Disk, Disk], hold: Hold, clock: Clock
) -> dict[str, Any]:
    source, target = both
    with (
        disk_paths.opened(source, mounts) as from_,
        disk_paths.opened(target, mounts) as to,
        _open(source, from_.path, os.O_RDONLY, hold) as old,
        _open(target, to.path, os.O_RDWR, hold) as new,
    ):
        size = verification.length(old)
        if size < source.size:
            raise DriverError(f"{source.path} has {size} bytes and not {source.size}")
        if verification.length(new) < size:
            raise InvalidValue("target", target.path, f"give {size} bytes or more")
        _bytes(old, new, _used(source, old, size), clock, zeros=False)
        return asdict(verification.prove(target.path, (old, new), size, clock))


def _copied_part(asked: extents.Copy, hold: Hold, clock: Clock) -> dict[str, Any]:
    with (
        extents.opened(asked.source, os.O_RDONLY, hold) as old,
        extents.opened(asked.target, os.O_RDWR | os.O_EXCL, hold) as new,
    ):
        size = asked.length
        for path, file in ((asked.source, old), (asked.target, new)):
            if verification.length(file) < size:
                raise InvalidValue("length", size, f"{path} is shorter")
        _bytes(old, new, [(0, size)], clock, zeros=True)
        name = asked.target
        return asdict(verification.prove(name, (old, new), size, clock, whole=False))


def _zeroed(asked: extents.Zero, hold: Hold, clock: Clock) -> int:
    with extents.opened(asked.device, os.O_RDWR | os.O_EXCL, hold) as file:
        size = verification.length(file)
        end = size if asked.length is None else asked.start + asked.length
        if not asked.start <= end <= size:
            raise InvalidValue("length", asked.length, f"the device has {size} bytes")
        at, step = asked.start, _ZEROED
        while at < end:
            length, began = min(step, end - at), time.monotonic()
            fcntl.ioctl(file, _BLKZEROOUT, struct.pack("QQ", at, length))
            clock(length)
            quick = time.monotonic() - began < _QUICK_SECONDS
            at, step = at + length, min(2 * step, _MOST_ZEROED) if quick else _ZEROED
        os.fsync(file)  # it orders no flush by itself
        return end - asked.start


@contextlib.contextmanager
def _open(disk: Disk, path: str, flags: int, hold: Hold) -> Iterator[int]:
    # LIO writes to a block device past its page cache, which may hold old bytes.
    # O_EXCL: EBUSY if the kernel's target, a file system or LVM has it (open(2)).
    block = os.O_DIRECT | os.O_EXCL if disk.kind is DiskKind.BLOCK else 0
    file = extents.patiently(path, flags | block, hold)
    try:
        yield file
    finally:
        os.close(file)


def _used(source: Disk, file: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of the source that are no holes, from unit to unit."""
    if source.kind is DiskKind.BLOCK:
        yield 0, size
        return
    for start, end in verification.data(file, size):
        yield start // _UNIT * _UNIT, end


def _bytes(
    old: int,
    new: int,
    used: Iterator[tuple[int, int]] | list[tuple[int, int]],
    clock: Clock,
    zeros: bool,
) -> None:
    """Copy these parts; all is on the medium when it returns."""
    written = 0
    memory = mmap.mmap(-1, STEP)
    for start, end in used:
        for at in range(start, end, STEP):
            length = min(STEP, end - at)
            held = verification.read(old, memory, at, length)
            if zeros or held != ZEROS[:length]:
                written += _write(new, memory, at, length)
            if written >= _FLUSHED:
                os.fdatasync(new)
                written = 0
            clock(length)
    os.fsync(new)


def _write(new: int, memory: mmap.mmap, at: int, length: int) -> int:
    whole = -(-length // _UNIT) * _UNIT
    memory[length:whole] = bytes(whole - length)
    verification.write(new, memoryview(memory)[:whole], at)
    return whole


@contextlib.contextmanager
def _told(what: str, path: str) -> Iterator[None]:
    """The kernel's refusals as errors of ours."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise NoSpace(path, why) from None
        if error.errno == errno.EBUSY:
            raise DiskBusy(
                extents.identity(path), f"{what}: something on this node has it open"
            ) from None
        raise DriverError(f"{what}: {why}") from None
