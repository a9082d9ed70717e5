# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The storage in memory behind the fake drivers. It survives a restart of the daemon.

``FakeVolumes`` and ``FakeTarget`` of one backend name share one ``FakeStorage``.
A second pair of drivers of that name gets the same storage, as after a restart. Tests
call ``reset`` to start with no storage. ``lock`` guards everything.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lunshare.drivers.values import Auth, Mode, Registration

#: The unit in which bytes are stored.
BLOCK = 4096
_SECTOR = 512


class FakeDisk:
    """A disk whose blocks are stored only after they are written."""

    __slots__ = (
        "allocated",
        "blocks",
        "complete",
        "lost",
        "origin",
        "size",
        "unflushed",
        "wiped",
    )

    def __init__(self, size: int) -> None:
        self.size = size
        self.allocated = 0  # bytes, of a disk that reserves its space
        self.lost = False  # of a snapshot: its bytes are lost
        self.origin = ""  # of a foreign snapshot: the id of its volume
        self.unflushed: set[int] = set()  # blocks that a power cut loses
        self.complete = False  # the next create finishes an incomplete disk
        self.wiped = 0  # bytes, of a deleted disk
        self.blocks: dict[int, bytearray] | None = None

    @property
    def written(self) -> int:
        """The bytes that it uses in a thin pool."""
        return len(self.blocks or ()) * BLOCK

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; bytes that were never written are zeros."""
        self._inside(offset, length)
        first, last = offset // BLOCK, (offset + length + BLOCK - 1) // BLOCK
        empty, blocks = bytes(BLOCK), self.blocks or {}
        data = b"".join(bytes(blocks.get(n, empty)) for n in range(first, last))
        start = offset - first * BLOCK
        return data[start : start + length]

    def write(self, offset: int, data: bytes) -> int:
        """Write ``data`` at ``offset``; return how many more bytes it uses."""
        self._inside(offset, len(data))
        if self.blocks is None:
            self.blocks = {}
        before, position = self.written, 0
        while position < len(data):
            number, start = divmod(offset + position, BLOCK)
            piece = data[position : position + BLOCK - start]
            block = self.blocks.setdefault(number, bytearray(BLOCK))
            block[start : start + len(piece)] = piece
            position += len(piece)
        return self.written - before

    def discard(self, offset: int, length: int) -> int:
        """Drop complete blocks; return how many bytes that frees."""
        self._inside(offset, length)
        before = self.written
        for n in range(-(-offset // BLOCK), (offset + length) // BLOCK):
            (self.blocks or {}).pop(n, None)
        return before - self.written

    def _inside(self, offset: int, length: int) -> None:
        if offset < 0 or offset + length > self.size:
            raise OSError(f"{offset}+{length} is beyond the end of {self.size} bytes")

    def copy(self) -> FakeDisk:
        """Return another disk with the same bytes."""
        copy = FakeDisk(self.size)
        if self.blocks is not None:
            copy.blocks = {n: bytearray(block) for n, block in self.blocks.items()}
        return copy


class FakeAcl:
    """One host's access. Its sessions end with it."""

    __slots__ = ("attachment_id", "auth", "mode", "sessions", "writes_in_progress")

    def __init__(self, attachment_id: str, auth: Auth | None) -> None:
        self.mode = Mode.RO
        self.attachment_id, self.auth = attachment_id, auth
        self.sessions: tuple[object, ...] = ()
        self.writes_in_progress = 0


class FakeStorage:
    """Disks, exports by volume id (each: ACLs by initiator), and foreign objects."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.write_done = threading.Condition(self.lock)
        self.slow: dict[str, Gate] = {}  # by volume id: its writes stop there
        self.disks: dict[str, FakeDisk] = {}
        self.snapshots: dict[str, FakeDisk] = {}
        self.deleted: dict[str, FakeDisk] = {}  # not wiped yet
        self.exports: dict[str, dict[str, FakeAcl]] = {}
        #: By volume id: hosts that have left something, each with a sentence.
        self.remains: dict[str, dict[str, str]] = {}
        #: By volume id: the keys that hosts have registered.
        self.registrations: dict[str, list[Registration]] = {}
        #: Addresses that may connect; None where the firewall was lost.
        self.admitted: set[str] | None = None
        self.open: set[str] = set()  # volume ids that a process has open
        self.fails_reads = self.fails_writes = False  # with an I/O error
        self._disk_locks: dict[str, Any] = {}
        # Running sums in bytes, so that no call adds up all disks.
        self.provisioned, self.written = 0, 0
        # Foreign bytes, disks and exports: the fakes do not list or touch them.
        self.foreign = 0
        self.foreign_disks: dict[str, FakeDisk] = {}
        self.foreign_snapshots: dict[str, FakeDisk] = {}
        self.foreign_exports: dict[str, dict[str, FakeAcl]] = {}

    @contextmanager
    def io(self, *, write: bool) -> Iterator[None]:
        """Hold the lock for one access to the medium.

        :raises OSError: EIO, while the medium fails.
        """
        with self.lock:
            if self.fails_writes if write else self.fails_reads:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            yield

    def disk_lock(self, volume_id: str) -> Any:
        """Return the lock for work on one disk's bytes that has several steps."""
        with self.lock:
            return self._disk_locks.setdefault(volume_id, threading.RLock())

    def power_cut(self) -> None:
        """Lose the blocks that were written and not flushed."""
        with self.lock:
            for disk in (*self.disks.values(), *self.snapshots.values()):
                for number in disk.unflushed:
                    (disk.blocks or {}).pop(number, None)
                disk.unflushed.clear()

    def create(self, volume_id: str, size: int) -> FakeDisk:
        """Create a disk of ``size``, rounded up to sectors, or extend it."""
        size = -(-size // _SECTOR) * _SECTOR
        disk = self.disks.setdefault(volume_id, FakeDisk(0))
        self.provisioned += max(0, size - disk.size)
        disk.size = max(disk.size, size)
        return disk

    def put(self, disks: dict[str, FakeDisk], key: str, disk: FakeDisk) -> None:
        """Store ``disk`` among disks or snapshots, instead of any with that key."""
        self.remove(disks, key)
        disks[key] = disk
        self.provisioned += disk.size
        self.written += disk.written

    def remove(self, disks: dict[str, FakeDisk], key: str) -> None:
        """Remove a disk or a snapshot with its bytes, if it exists."""
        if disk := disks.pop(key, None):
            self.provisioned -= disk.size
            self.written -= disk.written

    def drop(self, volume_id: str) -> None:
        """Remove a volume's disk, if it exists."""
        self.remove(self.disks, volume_id)

    def write(self, volume_id: str, offset: int, data: bytes) -> None:
        """Write to a disk."""
        with self.io(write=True):
            self.written += self.disks[volume_id].write(offset, data)

    def discard(self, volume_id: str, offset: int, length: int) -> None:
        """Discard bytes of a disk."""
        with self.io(write=True):
            self.written -= self.disks[volume_id].discard(offset, length)

    def read(self, volume_id: str, offset: int, length: int) -> bytes:
        """Read from a disk."""
        with self.io(write=False):
            return self.disks[volume_id].read(offset, length)


_STORAGES: dict[str, FakeStorage] = {}
_LOCK = threading.Lock()


def storage(name: str) -> FakeStorage:
    """Return the storage of the backend of that name; the first call creates it."""
    with _LOCK:
        return _STORAGES.setdefault(name, FakeStorage())


def disk_at(path: str) -> FakeDisk | None:
    """Return a copy of the disk that a fake driver has at this path, or None.

    :raises OSError: EIO, while its medium fails.
    """
    match = re.fullmatch("/dev/fake-([^/]+)/volume-([^/]+)", path)
    if match is None:
        return None
    owner = storage(match[1])
    with owner.io(write=False):
        disk = owner.disks.get(match[2])
        return disk.copy() if disk else None


def reset() -> None:
    """Forget every storage. Drivers that exist keep the storage that they have."""
    with _LOCK:
        _STORAGES.clear()


class Gate:
    """Where a call stops: the call sets ``reached``, the test sets ``open``."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until ``open`` is set; raise TimeoutError if the test forgets it."""
        self.reached.set()
        if not self.open.wait(seconds):
            raise TimeoutError("a held failure point was never released")


class Failures:
    """Named points in a fake driver where a test can make it fail or stop.

    ``POINTS`` of a fake driver are its points, in the order in which they are passed.
    A point stays armed until its ``with`` block ends.
    """

    def __init__(self, points: tuple[str, ...]) -> None:
        self._points = points
        self._armed: dict[str, Callable[[], None]] = {}
        self._watcher: Callable[[str], None] | None = None

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call ``watcher`` with the name of each point that is passed."""
        self._watcher = watcher

    @contextmanager
    def fail(self, point: str, error: BaseException) -> Iterator[None]:
        """Raise ``error`` at ``point``."""

        def raising() -> None:
            raise error

        with self._arm(point, raising):
            yield

    @contextmanager
    def hold(self, point: str) -> Iterator[Gate]:
        """Stop at ``point`` until the block ends or the gate is opened."""
        gate = Gate()
        with self._arm(point, gate.wait):
            try:
                yield gate
            finally:
                gate.open.set()

    def at(self, point: str) -> None:
        """Pass a point: the fake driver calls it, and it does what a test armed."""
        if self._watcher is not None:
            self._watcher(point)
        if self._armed and (act := self._armed.get(point)):
            act()

    @contextmanager
    def _arm(self, point: str, act: Callable[[], None]) -> Iterator[None]:
        if point not in self._points:
            raise KeyError(f"{point} is not one of {', '.join(self._points)}")
        self._armed[point] = act
        try:
            yield
        finally:
            del self._armed[point]
