# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The storage behind the fakes: what stays when the daemon dies.

``FakeVolumes`` and ``FakeTarget`` of one backend name share one ``FakeStorage``.
A second pair of drivers of that name finds it again, as after a restart; tests
call ``reset`` to begin with nothing. Everything is guarded by ``lock``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lunshare.drivers.values import Auth, Mode

#: Bytes that are kept together.
BLOCK = 4096
_SECTOR = 512


class FakeDisk:
    """A disk whose bytes exist once they are written."""

    __slots__ = ("allocated", "blocks", "lost", "size", "unflushed", "whole", "wiped")

    def __init__(self, size: int) -> None:
        self.size = size
        self.allocated = 0  # bytes, of one that has its room from the beginning
        self.lost = False  # a snapshot that has lost its bytes
        self.unflushed: set[int] = set()  # blocks that a power cut takes
        self.whole = False  # a half-made disk is finished by the next create
        self.wiped = 0  # bytes, of a deleted one
        self.blocks: dict[int, bytearray] | None = None

    @property
    def written(self) -> int:
        """Bytes that take room in a thin pool."""
        return len(self.blocks or ()) * BLOCK

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; what was never written is zero."""
        self._inside(offset, length)
        first, last = offset // BLOCK, (offset + length + BLOCK - 1) // BLOCK
        empty, blocks = bytes(BLOCK), self.blocks or {}
        data = b"".join(bytes(blocks.get(n, empty)) for n in range(first, last))
        start = offset - first * BLOCK
        return data[start : start + length]

    def write(self, offset: int, data: bytes) -> int:
        """Put ``data`` at ``offset``; return how much more room that takes."""
        self._inside(offset, len(data))
        if self.blocks is None:
            self.blocks = {}
        before, done = self.written, 0
        while done < len(data):
            number, start = divmod(offset + done, BLOCK)
            piece = data[done : done + BLOCK - start]
            block = self.blocks.setdefault(number, bytearray(BLOCK))
            block[start : start + len(piece)] = piece
            done += len(piece)
        return self.written - before

    def discard(self, offset: int, length: int) -> int:
        """Forget whole blocks; return how much room that gives back."""
        self._inside(offset, length)
        before = self.written
        for n in range(-(-offset // BLOCK), (offset + length) // BLOCK):
            (self.blocks or {}).pop(n, None)
        return before - self.written

    def _inside(self, offset: int, length: int) -> None:
        if offset < 0 or offset + length > self.size:
            raise OSError(f"{offset}+{length} is beyond the end of {self.size} bytes")

    def copy(self) -> FakeDisk:
        """A disk of its own with the same bytes."""
        twin = FakeDisk(self.size)
        if self.blocks is not None:
            twin.blocks = {n: bytearray(block) for n, block in self.blocks.items()}
        return twin


class FakeAcl:
    """One host's access. Its sessions are ended with it."""

    __slots__ = ("attachment_id", "auth", "landing", "mode", "sessions")

    def __init__(self, attachment_id: str, auth: Auth | None) -> None:
        self.mode = Mode.RO
        self.attachment_id, self.auth = attachment_id, auth
        self.sessions: tuple[object, ...] = ()
        self.landing = 0  # writes that the target has taken, and not ended


class FakeStorage:
    """Disks, exports by volume id (each: ACLs by initiator), and what others hold."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.landed = threading.Condition(self.lock)
        self.slow: dict[str, Gate] = {}  # by volume id: its writes stand still there
        self.disks: dict[str, FakeDisk] = {}
        self.snapshots: dict[str, FakeDisk] = {}
        self.leaving: dict[str, FakeDisk] = {}  # deleted, and not wiped yet
        self.exports: dict[str, dict[str, FakeAcl]] = {}
        self.open: set[str] = set()  # volume ids that a process has open
        self._at_work: dict[str, Any] = {}
        # Kept as running sums, so that no call adds up all disks. In bytes.
        self.promised, self.written = 0, 0
        # What others keep here: neither listed nor touched by the fakes.
        self.foreign = 0
        self.foreign_disks: dict[str, FakeDisk] = {}
        self.foreign_exports: dict[str, dict[str, FakeAcl]] = {}

    def working(self, volume_id: str) -> Any:
        """A lock that is held by what takes several steps on one disk's bytes."""
        with self.lock:
            return self._at_work.setdefault(volume_id, threading.RLock())

    def power_cut(self) -> None:
        """Lose what was written and not flushed."""
        with self.lock:
            for disk in (*self.disks.values(), *self.snapshots.values()):
                for number in disk.unflushed:
                    (disk.blocks or {}).pop(number, None)
                disk.unflushed.clear()

    def make(self, volume_id: str, size: int) -> FakeDisk:
        """Add a disk of ``size`` in whole sectors, or let the one there grow to it."""
        size = -(-size // _SECTOR) * _SECTOR
        disk = self.disks.setdefault(volume_id, FakeDisk(0))
        self.promised += max(0, size - disk.size)
        disk.size = max(disk.size, size)
        return disk

    def put(self, place: dict[str, FakeDisk], key: str, disk: FakeDisk) -> None:
        """Have ``disk`` at its place among disks or snapshots, instead of any there."""
        self.take(place, key)
        place[key] = disk
        self.promised += disk.size
        self.written += disk.written

    def take(self, place: dict[str, FakeDisk], key: str) -> None:
        """Forget a disk or a snapshot and its bytes, if it is there."""
        if disk := place.pop(key, None):
            self.promised -= disk.size
            self.written -= disk.written

    def drop(self, volume_id: str) -> None:
        """Forget a volume's disk, if it is there."""
        self.take(self.disks, volume_id)

    def write(self, volume_id: str, offset: int, data: bytes) -> None:
        """Write to a disk."""
        with self.lock:
            self.written += self.disks[volume_id].write(offset, data)

    def discard(self, volume_id: str, offset: int, length: int) -> None:
        """Discard bytes of a disk."""
        with self.lock:
            self.written -= self.disks[volume_id].discard(offset, length)

    def read(self, volume_id: str, offset: int, length: int) -> bytes:
        """Read from a disk."""
        with self.lock:
            return self.disks[volume_id].read(offset, length)


_STORAGES: dict[str, FakeStorage] = {}
_LOCK = threading.Lock()


def storage(name: str) -> FakeStorage:
    """Return the storage of the backend of that name; the first call makes it."""
    with _LOCK:
        return _STORAGES.setdefault(name, FakeStorage())


def disk_at(path: str) -> FakeDisk | None:
    """A copy of the disk that a fake shows at this path, or None."""
    found = re.fullmatch("/dev/fake-([^/]+)/volume-([^/]+)", path)
    if found is None:
        return None
    held = storage(found[1])
    with held.lock:
        disk = held.disks.get(found[2])
        return disk.copy() if disk else None


def reset() -> None:
    """Forget every storage; drivers made before keep what they hold."""
    with _LOCK:
        _STORAGES.clear()


class Gate:
    """A call that stands still: ``reached`` is set by it, ``open`` by the test."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self, seconds: float = 60.0) -> None:
        """Stand still until ``open`` is set; a test that forgets it is told."""
        self.reached.set()
        if not self.open.wait(seconds):
            raise TimeoutError("a held failure point was never released")


class Failures:
    """Named points in a fake where a test can make it fail or stand still.

    The points of a fake are its ``POINTS``, in the order they are passed. A
    point stays armed until its ``with`` block ends.
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
        """Stand still at ``point`` until the block ends or the gate is opened."""
        gate = Gate()
        with self._arm(point, gate.wait):
            try:
                yield gate
            finally:
                gate.open.set()

    def at(self, point: str) -> None:
        """Called by the fake: do what a test asked for here."""
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
