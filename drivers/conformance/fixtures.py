# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a driver gives to the kit: how to build it, and how to reach its bytes.

Fixtures that raise must be overridden; the others may be. What the driver can do is
asked of the driver (lunshare.drivers.abilities): a "no" makes the kit expect the
opposite, it leaves no test out. What a binding does not let the kit try is
printed at the end of the run, in capitals.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from lunshare.drivers import export_paths
from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance import block_io, interruption
from lunshare.drivers.conformance.coverage import KitFixtures
from lunshare.drivers.conformance.interruption import OnStep
from lunshare.drivers.fake_storage import Gate
from lunshare.drivers.values import Disk, DiskKind, Snapshot, Volume

MIB = 1024**2


def defaults(driver: type[VolumeDriver | TargetDriver], **given: Any) -> dict[str, Any]:
    """The options of a driver with their defaults, and those given."""
    return {option.dest: option.default for option in driver.OPTIONS} | given


class Session(Protocol):
    """A host that is logged in to a volume's LUN.

    ``read`` and ``write`` raise PermissionError when the LUN is
    write-protected, and ConnectionError when the target ended the session; an
    implementation must not log in again by itself.
    """

    @property
    def serial(self) -> str:
        """The unit serial number (SCSI INQUIRY, VPD page 80h)."""

    @property
    def size(self) -> int:
        """The LUN's size in bytes, asked anew."""

    @property
    def alive(self) -> bool:
        """Whether the target still answers on this very session."""

    def read(self, offset: int, length: int) -> bytes:
        """Read; offset and length are multiples of 4096."""

    def write(self, offset: int, data: bytes) -> None:
        """Write; offset and length are multiples of 4096."""

    def close(self) -> None:
        """Log out. Closing what has ended is fine."""


class Host(Protocol):
    """One initiator."""

    initiator: str

    def login(self, connection: Mapping[str, Any]) -> Session:
        """Log in with what ``TargetDriver.connection`` returned.

        :raises PermissionError: the target refused.
        """


class VolumeFixtures(KitFixtures):
    """Bind ``VolumeContract`` with a subclass of this."""

    #: A size that is cheap to make, in bytes.
    size = 8 * MIB

    #: Bytes that the pool may take and give back for tables of its own.
    metadata_size = 0

    #: Commands and verbs of root that change nothing: a driver that is killed
    #: after one is where it was. Naming them saves time, and no more.
    read_only_steps: Collection[str] = ("lvs", "vgs", "pvs", "stat")

    @pytest.fixture
    def build(self) -> Callable[[], VolumeDriver]:
        """A function returning a new instance of the driver, always on the same pool.

        The pool holds no volume of ours when a test starts. Calling it twice
        is a restart of the daemon.
        """
        raise NotImplementedError(
            "override `build`: return a function that"
            " builds the driver on an empty pool"
        )

    @pytest.fixture
    def misconfigured(self) -> VolumeDriver:
        """An instance whose pool does not exist."""
        raise NotImplementedError(
            "override `misconfigured`: return an instance"
            " of the driver whose pool does not exist"
        )

    @pytest.fixture
    def full_pool(self) -> Callable[[], AbstractContextManager[None]]:
        """A function whose ``with`` block is a time in which the pool is full.

        Somebody else filled it, so that volumes there are keep their bytes.
        """
        raise NotImplementedError(
            "override `full_pool`: return a context manager"
            " function that fills the pool and frees it again"
        )

    @pytest.fixture
    def foreign_state(self) -> Callable[[], object]:
        """A disk that is not ours lies in the pool; call this to see its state.

        The state is whatever compares equal while the disk is untouched: at
        least its presence, its size and its bytes.
        """
        raise NotImplementedError(
            "override `foreign_state`: put a disk into the pool that"
            " does not carry our name; return its state"
        )

    @pytest.fixture
    def foreign_disk(self) -> Callable[[bytes], str]:
        """A function that puts a disk into the pool which is not ours.

        It has the usual size and the bytes that are given, and ``manage`` takes what
        the function returns as its reference. Whatever is left of it afterwards is
        yours to remove. Not called where ``manages`` is no.
        """
        return lambda data: "nothing"

    @pytest.fixture
    def other_backend(self) -> Callable[[], VolumeDriver] | None:
        """A function that builds another backend's driver on the same pool.

        None where two backends cannot share one.
        """
        return None

    @pytest.fixture(autouse=True)
    def _read_abilities(self, build: Callable[[], VolumeDriver]) -> None:
        self.can = build().abilities

    @pytest.fixture
    def driver(self, build: Callable[[], VolumeDriver]) -> VolumeDriver:
        """The driver, checked as a daemon does at start."""
        driver = build()
        driver.check()
        return driver

    def read(self, driver: VolumeDriver, disk: Disk, offset: int, length: int) -> bytes:
        """Read bytes of a disk; past caches if there are any."""
        with open_disk(disk, os.O_RDONLY) as file:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(file, length, offset)

    def write(self, driver: VolumeDriver, disk: Disk, offset: int, data: bytes) -> None:
        """Write bytes to a disk, down to the medium."""
        with open_disk(disk, os.O_WRONLY) as file:
            os.pwrite(file, data, offset)
            os.fsync(file)

    def discard(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        """Discard bytes of a disk; OSError "not supported" where that cannot be."""
        with open_disk(disk, os.O_RDWR) as file:
            block_io.discard(file, offset, length)

    def block_sizes(self, driver: VolumeDriver, disk: Disk) -> tuple[int, int]:
        """The smallest unit of I/O, and the one that is written at once, in bytes."""
        with open_disk(disk, os.O_RDONLY) as file:
            return block_io.block_sizes(file)

    def held_open(
        self, driver: VolumeDriver, disk: Disk
    ) -> AbstractContextManager[object]:
        """A time in which somebody has the disk open."""
        return open_disk(disk, os.O_RDONLY)

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """Leave what a create that was killed half-way leaves.

        Override it if a kill can leave anything at all between nothing and a
        complete disk.
        """

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        """Leave what a ``create_from`` that was killed half-way leaves."""

    def reboot(self, driver: VolumeDriver) -> None:
        """Bring disks to where a reboot leaves them: there, but perhaps not active."""

    def power_cut(self, driver: VolumeDriver) -> bool:
        """Lose what was not flushed, and come back; False if that cannot be done."""
        return False

    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object] | None:
        """A time in which another process has a foreign disk open; None: unsupported.

        Needed where ``manages`` is yes.
        """
        return None

    def lose_snapshot(self, driver: VolumeDriver, snapshot: Snapshot) -> None:
        """Let a snapshot lose its bytes. Needed where ``loses_snapshots`` is yes."""
        raise NotImplementedError(
            "override `lose_snapshot`: let that snapshot lose its bytes"
        )

    def allocated(self, driver: VolumeDriver, disk: Disk) -> int | None:
        """The bytes that the storage has allocated for a disk; None: cannot be told."""
        if disk.kind is DiskKind.FILE:
            return os.stat(disk.path).st_blocks * 512
        return None

    def path_rejection(self, disk: Disk) -> str:
        """Why the target's side would not export what the driver shows, or nothing."""
        return export_paths.rejection(disk)

    def watch_steps(self, driver: VolumeDriver, on_step: OnStep) -> VolumeDriver:
        """The same driver, which calls ``on_step`` right after each of its steps.

        A step is what it asks of root. One that asks nothing of root works in this
        process, and the kit counts the lines of its code. Override it where the work
        is done by other means; ``fakes`` is an example.
        """
        return interruption.watch_steps(driver, on_step, self.read_only_steps)


@contextlib.contextmanager
def open_disk(disk: Disk, flags: int) -> Iterator[int]:
    """Open a disk by its path."""
    file = os.open(Path(disk.path), flags)
    try:
        yield file
    finally:
        os.close(file)


class TargetFixtures(KitFixtures):
    """Bind ``TargetContract`` with a subclass of this."""

    #: Size of the volumes that are exported, in bytes.
    size = 8 * MIB

    #: Commands and verbs of root that change nothing.
    read_only_steps: Collection[str] = ("lio.check", "lio.observe", "lio.live")

    #: What ``connection_info`` must have: its driver_volume_type, and further keys.
    #: Needed where the target's PROTOCOL is not in ``target.WORDS``.
    connection_keys: tuple[str, ...] = ()

    @pytest.fixture(autouse=True)
    def _read_abilities(self, build: Callable[[], TargetDriver]) -> None:
        self.can = build().abilities

    @pytest.fixture
    def volumes(self) -> VolumeDriver:
        """The volume driver whose disks are exported."""
        raise NotImplementedError("override `volumes`: return a checked volume driver")

    @pytest.fixture
    def build(self) -> Callable[[], TargetDriver]:
        """A function returning a new instance, always on the same live target.

        Nothing of ours is exported when a test starts. Calling it twice is a
        restart of the daemon.
        """
        raise NotImplementedError(
            "override `build`: return a function that builds"
            " the target driver on a target with no export"
        )

    @pytest.fixture
    def host(self) -> Callable[[str], Host]:
        """A function from an initiator's name to a ``Host``."""
        raise NotImplementedError(
            "override `host`: return a function from an"
            " initiator's name to a Host that can reach the target"
        )

    @pytest.fixture
    def foreign_state(self) -> Callable[[], object]:
        """Somebody else's export is live on the target; call this to see its state."""
        raise NotImplementedError(
            "override `foreign_state`: export something under a name"
            " that is not ours; return its live state"
        )

    @pytest.fixture
    def target(self, build: Callable[[], TargetDriver]) -> TargetDriver:
        """The target driver, checked as a daemon does at start."""
        target = build()
        target.check()
        return target

    def watch_steps(self, target: TargetDriver, on_step: OnStep) -> TargetDriver:
        """As ``VolumeFixtures.watched``."""
        return interruption.watch_steps(target, on_step, self.read_only_steps)

    def slow_writes(self, disk: Disk) -> AbstractContextManager[Gate] | None:
        """A time in which writes to the disk stand still until the gate is opened.

        ``reached`` of the gate is set when one does. None: cannot be done. Give the
        driver a deadline of a few seconds then: one closing is left to pass it.
        """
        return None


def new_volume(size: int) -> Volume:
    """A volume that was never there."""
    return Volume(str(uuid.uuid4()), size)
