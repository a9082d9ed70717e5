# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots and clones of a disk that a host writes to meanwhile.

The host writes the numbers 1, 2, 3, ... in turn to pages that are spread over the disk.
A copy that is one point in time has, for some number, what was written up to it and
nothing that was written later.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.copies import CopyContract
from lunshare.drivers.conformance.volume_bytes import PAGE, Create, Snap
from lunshare.drivers.errors import DiskBusy
from lunshare.drivers.values import Disk, Volume

_PAGES = 16
_WORDS = struct.Struct(f"<{PAGE // 8}Q")
_SECONDS = 60.0


class Writer:
    """A host that writes numbers to a disk; each is flushed before the next one."""

    def __init__(self, write: Callable[[int, bytes], None], size: int) -> None:
        self.begun = self.done = 0
        self._write, self._pages = write, pages(size)
        self._stop, self._written = threading.Event(), threading.Condition()

    def run(self) -> None:
        """Write until ``stop`` is called."""
        while not self._stop.is_set():
            self.begun += 1
            at = self._pages[(self.begun - 1) % _PAGES]
            self._write(at, _WORDS.pack(*[self.begun] * (PAGE // 8)))
            with self._written:
                self.done = self.begun
                self._written.notify_all()

    def stop(self) -> None:
        """Write no other number."""
        self._stop.set()

    def wait_until_pages_are_written(self) -> None:
        """Wait until each page has been written twice."""
        wanted = self.done + 2 * _PAGES
        with self._written:
            assert self._written.wait_for(lambda: self.done >= wanted, _SECONDS), (
                f"the host wrote {self.done} numbers in {_SECONDS:g} s"
            )


class PointInTimeContract(CopyContract):
    """One test for each behaviour."""

    @requires("supports_snapshots")
    def test_a_snapshot_of_a_disk_in_use_is_one_point_in_time(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin = create_volume()
        with self._writing(driver, driver.disk(origin.id)) as writer:
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    new_snapshot(origin)
                return
            before, snapshot, last = writer.done, new_snapshot(origin), writer.begun
            writer.wait_until_pages_are_written()
            driver.create_from(volume, snapshot)
        self._require_point_in_time(driver, volume, before, last)
        self._require_point_in_time(driver, origin, writer.done, writer.done)

    @requires("clones_at_once")
    def test_a_clone_of_a_disk_in_use_is_one_point_in_time(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        source = create_volume()
        with self._writing(driver, driver.disk(source.id)) as writer:
            before = writer.done
            driver.clone(volume, source)
            last = writer.begun
            writer.wait_until_pages_are_written()
        self._require_point_in_time(driver, volume, before, last)
        self._require_point_in_time(driver, source, writer.done, writer.done)

    @contextmanager
    def _writing(self, driver: VolumeDriver, disk: Disk) -> Iterator[Writer]:
        """A host writes to the disk inside the block."""
        writer = Writer(lambda at, data: self.write(driver, disk, at, data), self.size)
        with self.held_open(driver, disk), ThreadPoolExecutor(1) as host:
            work = host.submit(writer.run)
            try:
                writer.wait_until_pages_are_written()
                yield writer
            finally:
                writer.stop()
            work.result()

    def _require_point_in_time(
        self, driver: VolumeDriver, volume: Volume, first: int, last: int
    ) -> None:
        """Check that the disk is as after a number from ``first`` to ``last``."""
        disk = driver.disk(volume.id)
        read = [self.read(driver, disk, at, PAGE) for at in pages(self.size)]
        found = [_WORDS.unpack(page) for page in read]
        number = max(max(page) for page in found)
        assert first <= number <= last
        assert [{*page} for page in found] == [{each} for each in pages_after(number)]


def pages(size: int) -> list[int]:
    """The offsets of the pages in the order in which they are written."""
    step = (size - PAGE) // (_PAGES - 1) // PAGE * PAGE
    return [place * step for place in range(_PAGES)]


def pages_after(number: int) -> list[int]:
    """What each page has after ``number`` was written."""
    return [number - (number - 1 - place) % _PAGES for place in range(_PAGES)]
