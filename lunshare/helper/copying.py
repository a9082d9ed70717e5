# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Copy the bytes of one disk to another, and zero a disk, down to the medium.

For a migration both disks are ones that an export may open (disk_paths.open_disk). For
LVM they are the parts of a thick volume (extents.opened). Nothing else is opened.

Each copy ends with its verification: both sides are read back and compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lunshare.drivers.errors import DiskBusy, DriverError, InvalidValue, NoSpace
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import disk_paths, requests, verification
from lunshare.helper import mounts as mount_table
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.lvm import extents
from lunshare.helper.mounts import KERNEL, Mounts
from lunshare.helper.named_locks import Locks, TimedLock
from lunshare.helper.nfs import open_files
from lunshare.helper.nfs.open_files import IsExported
from lunshare.helper.served import Served
from lunshare.helper.verbs import LongVerb, NoteProgress, Report
from lunshare.helper.verification import STEP, ZEROS, Piece

# O_DIRECT requires this alignment of offsets, lengths and memory (open(2)). The size of
# a disk is a multiple of it, and the end of a file is padded with zeros.
_UNIT = 4096

# How many bytes one ioctl zeroes, at least and at most. It cannot be interrupted, so
# only a fast device gets more.
_ZEROED, _MOST_ZEROED = 64 * 1024**2, 1024**3
_QUICK_SECONDS = 0.5

# A flush after so many bytes takes not much longer than a step.
_FLUSHED = 256 * 1024**2

# linux/fs.h: _IO(0x12, 127), with start and length. If the device does not support it,
# the kernel writes pages of zeros. In both cases the range reads as zeros.
_BLKZEROOUT = 0x127F

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CopyVerbs:
    """The verbs that copy and zero. A second one onto the same disk waits."""

    def __init__(
        self,
        served: Served,
        is_exported: IsExported,
        mounts: Mounts = KERNEL,
        disk_locks: DiskLocks | None = None,
    ) -> None:
        self._served, self._is_exported = served, is_exported
        self._mounts, self._locks = mounts, Locks(disk_locks)

    def verbs(self) -> dict[str, LongVerb]:
        """Return the verbs by name."""
        return {
            "disk.copy": LongVerb(self.copy),
            "lvm.copy": LongVerb(self.copy_part),
            "lvm.zero": LongVerb(self.zero),
        }

    def copy(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> Any:
        """Copy all bytes of ``source`` to ``target``, which holds zeros or these bytes.

        Zeros are not written, so that a thin disk stays thin. When it returns, all
        bytes are on the medium and verified. The answer is the Proof. ``seconds`` is
        for the time without progress.

        :raises TargetFailed: a disk has a wrong form or type, or is not served.
        :raises InvalidValue: ``target`` is smaller.
        :raises DiskBusy: one of the disks is open elsewhere; a file is locked, or
            exported by this node.
        :raises NoSpace: the pool is full; ``target`` has some of the bytes.
        :raises CopyDiffers: ``target`` does not read back as ``source``.
        """
        source, target = (
            mount_table.need_served_disk(disk, self._served, self._mounts)
            for disk in requests.two_disks(given)
        )
        return self._run_locked(
            f"the copy of {source.path} onto {target.path}",
            target.path,
            (seconds, report),
            lambda lock, note_progress: self._copy(
                (source, target), lock, note_progress
            ),
        )

    def copy_part(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> Any:
        """Copy the first ``length`` bytes of a snapshot to a part, with its zeros.

        Raises as ``copy``. The answer is the Proof.
        """
        request = extents.copy(given, self._served)
        return self._run_locked(
            f"the copy of {request.source} onto {request.target}",
            request.target,
            (seconds, report),
            lambda lock, note_progress: _copy_part(request, lock, note_progress),
        )

    def zero(
        self, given: Mapping[str, Any], seconds: float, report: Report | None = None
    ) -> int:
        """Zero a part or a deleted volume, down to the medium; return the bytes."""
        request = extents.zero(given, self._served)
        return int(
            self._run_locked(
                f"the zeroing of {request.device}",
                request.device,
                (seconds, report),
                lambda lock, note_progress: _zero_part(request, lock, note_progress),
            )
        )

    def _copy(
        self, disks: tuple[Disk, Disk], lock: TimedLock, note_progress: NoteProgress
    ) -> dict[str, Any]:
        source, target = disks
        with (
            disk_paths.open_disk(source, self._mounts) as from_,
            disk_paths.open_disk(target, self._mounts) as to,
            self._open(source, from_.path, os.O_RDONLY, lock) as old,
            self._open(target, to.path, os.O_RDWR, lock) as new,
        ):
            size = verification.length(old)
            if size < source.size:
                why = f"has {size} bytes and not {source.size}"
                raise DriverError(f"{source.path} {why}")
            if verification.length(new) < size:
                raise InvalidValue("target", target.path, f"give {size} bytes or more")
            holes = all(map(self._mounts.trusts_holes, (old, new)))
            data = _parts_with_data(source, old, size) if holes else [(0, size)]
            _copy_parts(old, new, data, note_progress, zeros=False)
            sides = (old, new)
            return asdict(
                verification.verify(
                    target.path, sides, size, note_progress, holes=holes
                )
            )

    @contextlib.contextmanager
    def _open(
        self, disk: Disk, path: str, flags: int, lock: TimedLock
    ) -> Iterator[int]:
        # LIO writes to a block device past its page cache, which may hold old bytes.
        # O_EXCL: EBUSY if the kernel's target, a file system or LVM has it open
        # (open(2)). For a file the locks of hosts say the same.
        block = os.O_DIRECT | os.O_EXCL if disk.kind is DiskKind.BLOCK else 0
        file = extents.open_patiently(path, flags | block, lock)
        try:
            if disk.kind is DiskKind.BLOCK:
                disk_paths.need_its_device(disk, os.fstat(file))
            else:
                name = f"volume-{disk.volume_id}"
                open_files.need_unused(file, name, self._is_exported)
            yield file
        finally:
            os.close(file)

    def _run_locked(
        self,
        what: str,
        path: str,
        limit: tuple[float, Report | None],
        step: Callable[[TimedLock, NoteProgress], Any],
    ) -> Any:
        answers: list[Any] = []

        def run(lock: TimedLock) -> None:
            with _translated_errors(what, path):
                answers.append(step(lock, lock.progress(what)))

        (seconds, report), medium = limit, os.path.dirname(path)
        with self._locks.hold(path, seconds, medium, report, what) as lock:
            lock.run_step(what, run, lock)
        return answers[0]


def _copy_part(
    asked: extents.Copy, lock: TimedLock, note_progress: NoteProgress
) -> dict[str, Any]:
    with (
        extents.opened(asked.source, os.O_RDONLY, lock) as old,
        extents.opened(asked.target, os.O_RDWR | os.O_EXCL, lock) as new,
    ):
        size = asked.length
        for path, file in ((asked.source, old), (asked.target, new)):
            if verification.length(file) < size:
                raise InvalidValue("length", size, f"{path} is shorter")
        _copy_parts(old, new, [(0, size)], note_progress, zeros=True)
        name = asked.target
        return asdict(
            verification.verify(name, (old, new), size, note_progress, whole=False)
        )


def _zero_part(
    asked: extents.Zero, lock: TimedLock, note_progress: NoteProgress
) -> int:
    with extents.opened(asked.device, os.O_RDWR | os.O_EXCL, lock) as file:
        size = verification.length(file)
        end = size if asked.length is None else asked.start + asked.length
        if not asked.start <= end <= size:
            raise InvalidValue("length", asked.length, f"the device has {size} bytes")
        _zero(file, asked.start, end, note_progress)
        return end - asked.start


def _zero(file: int, at: int, end: int, note_progress: NoteProgress) -> None:
    """Zero these bytes. The zeros are on the medium when it returns."""
    step = _ZEROED
    while at < end:
        length, began = min(step, end - at), time.monotonic()
        fcntl.ioctl(file, _BLKZEROOUT, struct.pack("QQ", at, length))
        note_progress(length)
        quick = time.monotonic() - began < _QUICK_SECONDS
        at, step = at + length, min(2 * step, _MOST_ZEROED) if quick else _ZEROED
    os.fsync(file)  # the ioctl does not flush


def _parts_with_data(source: Disk, file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the source that are not holes; each starts on a unit."""
    if source.kind is DiskKind.BLOCK:
        yield 0, size
        return
    for start, end in verification.data(file, size):
        yield start // _UNIT * _UNIT, end


def _copy_parts(
    old: int,
    new: int,
    used: Iterator[tuple[int, int]] | list[tuple[int, int]],
    note_progress: NoteProgress,
    zeros: bool,
) -> None:
    """Copy these parts. All bytes are on the medium when it returns."""
    unflushed, piece = 0, Piece()
    for start, end in used:
        for at in range(start, end, STEP):
            length = min(STEP, end - at)
            piece.read(old, at, length)
            if zeros or not piece.equals(ZEROS):
                piece.pad(-(-length // _UNIT) * _UNIT)
                verification.write(new, memoryview(piece.memory)[: piece.size], at)
                unflushed += piece.size
            if unflushed >= _FLUSHED:
                os.fdatasync(new)
                unflushed = 0
            note_progress(length)
    os.fsync(new)


@contextlib.contextmanager
def _translated_errors(what: str, path: str) -> Iterator[None]:
    """Raise the kernel's errors as DriverErrors."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise NoSpace(path, why) from None
        if error.errno == errno.EBUSY:
            raise DiskBusy(
                extents.id_of(path), f"{what}: a process on this node has it open"
            ) from None
        raise DriverError(f"{what}: {why}") from None
