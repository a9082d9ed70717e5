# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a driver gives to the kit: how to build it, and how to reach its bytes.

Fixtures that raise must be overridden; the others may be. Class attributes
are abilities: a yes or no to the sentence beside it, never a driver's name.
A "no" makes the kit expect the opposite; it leaves no test out.
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

from drivers.base import TargetDriver, VolumeDriver
from drivers.conformance import interruption, raw
from drivers.values import Disk, Snapshot, Volume

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


class VolumeFixtures:
    """Bind ``VolumeContract`` with a subclass of this."""

    #: A volume takes all its room at creation, so the pool refuses one that is
    #: larger than what is free.
    reserves_space = True

    #: The bytes of a volume can be kept as they were (snapshots), given back to it,
    #: and made into another volume.
    keeps_snapshots = True

    #: A volume that has snapshots can grow.
    extends_under_snapshots = True

    #: A disk that is not ours can become a volume, and a volume can be given away.
    takes_over = True

    #: A disk can be given all bytes of another, for a volume that moves.
    fills_disks = False

    #: A deleted disk takes room until its bytes are wiped, step by step.
    wipes_deleted = False

    #: A disk that somebody has open can be kept as it is at that moment. If not, a
    #: snapshot of it is refused with DiskBusy, for a copy would take too long.
    snapshots_open = True

    #: Bytes of a volume can be discarded: nobody needs them any longer.
    discards = True

    #: A disk is made in steps, between which the driver can be killed.
    works_in_steps = True

    #: A size that is cheap to make, in bytes.
    size = 8 * MIB

    #: Bytes that the pool may take and give back for tables of its own.
    tables = 0

    #: Commands and verbs of root that change nothing: a driver that is killed
    #: after one is where it was. Naming them saves time, and no more.
    asking: Collection[str] = ("lvs", "vgs", "pvs", "stat")

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
    def exhausted(self) -> Callable[[], AbstractContextManager[None]]:
        """A function whose ``with`` block is a time in which the pool is full.

        Somebody else filled it, so that volumes there are keep their bytes.
        """
        raise NotImplementedError(
            "override `exhausted`: return a context manager"
            " function that fills the pool and frees it again"
        )

    @pytest.fixture
    def foreign(self) -> Callable[[], object]:
        """A disk that is not ours lies in the pool; call this to see its state.

        The state is whatever compares equal while the disk is untouched: at
        least its presence, its size and its bytes.
        """
        raise NotImplementedError(
            "override `foreign`: put a disk into the pool that"
            " does not carry our name; return its state"
        )

    @pytest.fixture
    def stranger(self) -> Callable[[], str]:
        """A function that puts a disk into the pool which is not ours.

        It has the usual size, and ``manage`` takes what the function returns
        as its reference. Whatever is left of it afterwards is yours to remove.
        Not called where ``takes_over`` is False.
        """
        return lambda: "nothing"

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
            raw.discard(file, offset, length)

    def block_sizes(self, driver: VolumeDriver, disk: Disk) -> tuple[int, int]:
        """The smallest unit of I/O, and the one that is written at once, in bytes."""
        with open_disk(disk, os.O_RDONLY) as file:
            return raw.block_sizes(file)

    def held_open(
        self, driver: VolumeDriver, disk: Disk
    ) -> AbstractContextManager[object]:
        """A time in which somebody has the disk open."""
        return open_disk(disk, os.O_RDONLY)

    def leave_half_made(self, driver: VolumeDriver, volume: Volume) -> None:
        """Leave what a create that was killed half-way leaves.

        Override it if a kill can leave anything at all between nothing and a
        complete disk.
        """

    def leave_half_copied(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        """Leave what a ``create_from`` that was killed half-way leaves."""

    def power_cycle(self, driver: VolumeDriver) -> None:
        """Bring disks to where a reboot leaves them: there, but perhaps not active."""

    def dying(self, driver: VolumeDriver, steps: int) -> VolumeDriver:
        """The same driver in a life that is killed right after its nth step.

        A step is what it asks of root. Override it where the work is done by
        other means; ``interruption`` has what it takes, ``fakes`` an example.
        """
        return interruption.dying(driver, steps, self.asking)


@contextlib.contextmanager
def open_disk(disk: Disk, flags: int) -> Iterator[int]:
    """Open a disk by its path."""
    file = os.open(Path(disk.path), flags)
    try:
        yield file
    finally:
        os.close(file)


class TargetFixtures:
    """Bind ``TargetContract`` with a subclass of this."""

    #: An access is changed in steps, between which the driver can be killed.
    works_in_steps = True

    #: Size of the volumes that are exported, in bytes.
    size = 8 * MIB

    #: Commands and verbs of root that change nothing.
    asking: Collection[str] = ("lio.check", "lio.observe")

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
    def foreign(self) -> Callable[[], object]:
        """Somebody else's export is live on the target; call this to see its state."""
        raise NotImplementedError(
            "override `foreign`: export something under a name"
            " that is not ours; return its live state"
        )

    @pytest.fixture
    def target(self, build: Callable[[], TargetDriver]) -> TargetDriver:
        """The target driver, checked as a daemon does at start."""
        target = build()
        target.check()
        return target

    def dying(self, target: TargetDriver, steps: int) -> TargetDriver:
        """The same driver in a life that is killed right after its nth step.

        As ``VolumeFixtures.dying``.
        """
        return interruption.dying(target, steps, self.asking)


def new_volume(size: int) -> Volume:
    """A volume that was never there."""
    return Volume(str(uuid.uuid4()), size)
