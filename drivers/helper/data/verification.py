# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Proof that a copy is one: both sides are read back from their medium, and compared.

A checksum is of all bytes that are not zero, with their places, so that holes and zeros
are the same and a disk of 4 TiB that is almost empty is proven in no time.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from lunshare.drivers.errors import CopyDiffers
from lunshare.drivers.helper.data.progress import Clock

STEP = 1024**2
ZEROS = bytes(STEP)


@dataclass(frozen=True, slots=True)
class Proof:
    """How many bytes were compared, and the checksum that both sides have."""

    size: int
    checksum: str


def prove(
    name: str, files: tuple[int, int], size: int, clock: Clock, whole: bool = True
) -> Proof:
    """See that the second of ``files`` has the first ``size`` bytes of the first.

    And zeros behind them, if ``whole``. All of it is on its medium already (fsync).

    :raises CopyDiffers: it is not so; ``name`` is what the second is called.
    """
    source, target = files
    ends = {"the source": length(source), "it": length(target)}
    for which, end in ends.items():
        if end < size:
            raise CopyDiffers(name, f"{which} has {end} bytes and not {size}")
    old = checksum(source, size, clock)
    new = checksum(target, ends["it"] if whole else size, clock)
    if old != new:
        raise CopyDiffers(name, f"its checksum is {new}, the source's is {old}")
    return Proof(size, new)


def length(file: int) -> int:
    """The size of a file or a block device in bytes."""
    return os.lseek(file, 0, os.SEEK_END)


def checksum(file: int, size: int, clock: Clock) -> str:
    """Of the first ``size`` bytes, as they are on the medium."""
    found = hashlib.blake2b(digest_size=32)
    direct = _past_caches(file)
    try:
        memory = mmap.mmap(-1, STEP)
        for at in _steps(file, size):
            held = read(direct, memory, at, min(STEP, size - at))
            if held != ZEROS[: len(held)]:
                found.update(at.to_bytes(8, "big"))
                found.update(held.ljust(STEP, b"\0"))
            clock(len(held))
    finally:
        os.close(direct)
    return found.hexdigest()


def read(file: int, memory: mmap.mmap, at: int, size: int) -> bytes:
    """Read ``size`` bytes, all of them; ``at`` is a multiple of a block.

    :raises OSError: EIO where it ends before.
    """
    held = 0
    while held < size:
        # Whole blocks, as O_DIRECT wants them: what is behind the end is not there.
        done = os.preadv(file, [memoryview(memory)[held:]], at + held)
        if not done:
            raise OSError(errno.EIO, f"it ends at byte {at + held}")
        held += done
    return memory[:size]


def write(file: int, data: memoryview, at: int) -> None:
    """Write all of it: the kernel may take a part, as before a file system is full."""
    while data:
        done = os.pwritev(file, [data], at)
        if not done:
            raise OSError(errno.EIO, f"nothing is written at byte {at}")
        data, at = data[done:], at + done


def data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the first ``size`` bytes of a file are no hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        if start >= size:
            return
        end = min(os.lseek(file, start, os.SEEK_HOLE), size)
        yield start, end


def _steps(file: int, size: int) -> Iterator[int]:
    """Where the steps begin that are not wholly holes."""
    if stat.S_ISBLK(os.fstat(file).st_mode):
        yield from range(0, size, STEP)
        return
    next_one = 0
    for start, end in data(file, size):
        first = max(next_one, start // STEP * STEP)
        yield from range(first, end, STEP)
        next_one = -(-end // STEP) * STEP


def _past_caches(file: int) -> int:
    """Another descriptor, which reads what the medium holds.

    tmpfs takes O_DIRECT from Linux 6.6 on; where it is not taken, what was read and is
    on the medium is dropped from the cache.
    """
    path, flags = f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    plain = os.open(path, flags)
    os.posix_fadvise(plain, 0, 0, os.POSIX_FADV_DONTNEED)
    return plain
