# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Verify a copy: both sides are read back from their medium and compared.

A checksum covers all bytes that are not zero, with their offsets. So a hole and zeros
have the same checksum, and an almost empty disk of 4 TiB is verified quickly.
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
from lunshare.helper.verbs import NoteProgress

STEP = 1024**2
ZEROS = bytes(STEP)


@dataclass(frozen=True, slots=True)
class Proof:
    """How many bytes were compared, and the checksum of both sides."""

    size: int
    checksum: str


def verify(
    name: str,
    files: tuple[int, int],
    size: int,
    note_progress: NoteProgress,
    whole: bool = True,
) -> Proof:
    """Check that the second of ``files`` has the first ``size`` bytes of the first.

    With ``whole`` also that only zeros follow. All bytes are on the medium (fsync)
    before this is called. ``name`` is the second file's, for the error.

    :raises CopyDiffers: the lengths or the checksums differ.
    """
    source, target = files
    ends = {"the source": length(source), "it": length(target)}
    for which, end in ends.items():
        if end < size:
            raise CopyDiffers(name, f"{which} has {end} bytes and not {size}")
    old = checksum(source, size, note_progress)
    new = checksum(target, ends["it"] if whole else size, note_progress)
    if old != new:
        raise CopyDiffers(name, f"its checksum is {new}, the source's is {old}")
    return Proof(size, new)


def length(file: int) -> int:
    """Return the size of a file or a block device in bytes."""
    return os.lseek(file, 0, os.SEEK_END)


def checksum(file: int, size: int, note_progress: NoteProgress) -> str:
    """Return the checksum of the first ``size`` bytes, read from the medium."""
    digest = hashlib.blake2b(digest_size=32)
    direct = _past_caches(file)
    try:
        memory = mmap.mmap(-1, STEP)
        for at in _steps(file, size):
            piece = read(direct, memory, at, min(STEP, size - at))
            if piece != ZEROS[: len(piece)]:
                digest.update(at.to_bytes(8, "big"))
                digest.update(piece.ljust(STEP, b"\0"))
            note_progress(len(piece))
    finally:
        os.close(direct)
    return digest.hexdigest()


def read(file: int, memory: mmap.mmap, at: int, size: int) -> bytes:
    """Read exactly ``size`` bytes at offset ``at``, a multiple of the block size.

    :raises OSError: EIO when the file is shorter.
    """
    length_read = 0
    while length_read < size:
        # O_DIRECT requires complete blocks; at the end of the file fewer bytes come.
        count = os.preadv(file, [memoryview(memory)[length_read:]], at + length_read)
        if not count:
            raise OSError(errno.EIO, f"it ends at byte {at + length_read}")
        length_read += count
    return memory[:size]


def write(file: int, data: memoryview, at: int) -> None:
    """Write all of ``data``. The kernel may write a part, as on an almost full disk."""
    while data:
        count = os.pwritev(file, [data], at)
        if not count:
            raise OSError(errno.EIO, f"nothing is written at byte {at}")
        data, at = data[count:], at + count


def data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the parts of ``size`` bytes that are not holes.

    :raises OSError: EIO when the answers do not advance. The client of NFS returns any
        offset that its server sends (SEEK), and a loop without a step has no end.
    """
    end = 0
    while end < size:
        before = end
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        if start >= size:
            return
        end = min(os.lseek(file, start, os.SEEK_HOLE), size)
        if not before <= start < end:
            raise OSError(errno.EIO, f"its data at {before} is from {start} to {end}")
        yield start, end


def _steps(file: int, size: int) -> Iterator[int]:
    """Yield the start of each step that is not completely a hole."""
    if stat.S_ISBLK(os.fstat(file).st_mode):
        yield from range(0, size, STEP)
        return
    next_one = 0
    for start, end in data(file, size):
        first = max(next_one, start // STEP * STEP)
        yield from range(first, end, STEP)
        next_one = -(-end // STEP) * STEP


def _past_caches(file: int) -> int:
    """Return another descriptor, whose reads come from the medium.

    tmpfs supports O_DIRECT since Linux 6.6. Where it is not supported, pages that are
    already on the medium are dropped from the cache first.
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
