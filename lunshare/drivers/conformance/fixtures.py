# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures of a driver: how to build it, and how to read and write its disks.

You must override the fixtures that raise NotImplementedError; the others have defaults.
The kit reads what the driver can do from its ABILITIES. A "no" leaves no test out: the
kit expects the driver to refuse. The summary at the end of a run names what the kit
could not try, and what to override.
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

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance import block_io, interruption
from lunshare.drivers.conformance.coverage import KitFixtures
from lunshare.drivers.conformance.interruption import OnStep
from lunshare.drivers.fake.fake_storage import Gate
from lunshare.drivers.protocol import export_paths
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
        """The LUN's size in bytes, read from the target each time."""

    @property
    def alive(self) -> bool:
        """Whether the target still answers on this session."""

    def read(self, offset: int, length: int) -> bytes:
        """Read; offset and length are multiples of 4096."""

    def write(self, offset: int, data: bytes) -> None:
        """Write; offset and length are multiples of 4096."""

    def close(self) -> None:
        """Log out. If the session has ended, do nothing."""


class Host(Protocol):
    """One initiator."""

    initiator: str

    def login(self, connection: Mapping[str, Any]) -> Session:
        """Log in with what ``TargetDriver.connection_info`` returned.

        :raises PermissionError: the target refused.
        """


class VolumeFixtures(KitFixtures):
    """Bind ``VolumeContract`` with a subclass of this."""

    #: The size of most volumes, in bytes. Small volumes make the run faster.
    size = 8 * MIB

    #: Bytes by which the free space may change for metadata of the pool.
    metadata_size = 0

    #: The size of the largest volume that the kit fills, in bytes. It is sparse, but a
    #: driver that reads the holes, too, needs long for it.
    largest_fill = 2048 * MIB

    #: How many volumes exist at once where the kit lists them. More than a page of a
    #: storage's list, which has often 100. A driver that has no pages may have fewer.
    many_volumes = 110

    #: Commands and verbs of the root helper that change nothing. The kit does not
    #: kill the driver after them, which saves time.
    read_only_steps: Collection[str] = ("lvs", "vgs", "pvs", "stat")

    @pytest.fixture
    def build(self) -> Callable[[], VolumeDriver]:
        """A function returning a new instance of the driver, always on the same pool.

        The pool has no volume of this driver when a test starts. A second call
        stands for a restart of the daemon.
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
        """A function that returns a context in which the pool is full.

        Foreign data fills it; existing volumes keep their bytes.
        """
        raise NotImplementedError(
            "override `full_pool`: return a context manager"
            " function that fills the pool and frees it again"
        )

    @pytest.fixture
    def foreign_state(self) -> Callable[[], object]:
        """Put a foreign disk into the pool; return a function that reads its state.

        The state is equal as long as nothing changes the disk. It has at least its
        presence, its size and its bytes.
        """
        raise NotImplementedError(
            "override `foreign_state`: put a disk with a foreign name"
            " into the pool; return a function that reads its state"
        )

    @pytest.fixture
    def foreign_disk(self) -> Callable[[bytes], str]:
        """A function that puts a foreign disk with the given bytes into the pool.

        The disk has ``size`` bytes. The function returns its reference for ``manage``.
        Remove what is left of it after the test. Not used if ``manages`` is no.
        """
        return lambda data: "nothing"

    @pytest.fixture
    def other_backend(self) -> Callable[[], VolumeDriver] | None:
        """A function that builds another backend's driver on the same pool.

        None if two backends cannot share a pool.
        """
        return None

    @pytest.fixture(autouse=True)
    def _read_abilities(self, build: Callable[[], VolumeDriver]) -> None:
        self.can = build().abilities

    @pytest.fixture
    def driver(self, build: Callable[[], VolumeDriver]) -> VolumeDriver:
        """The driver, checked as the daemon does when it starts."""
        driver = build()
        driver.check()
        return driver

    def read(self, driver: VolumeDriver, disk: Disk, offset: int, length: int) -> bytes:
        """Read bytes of a disk, not from a cache."""
        with open_disk(disk, os.O_RDONLY) as file:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(file, length, offset)

    def write(self, driver: VolumeDriver, disk: Disk, offset: int, data: bytes) -> None:
        """Write bytes to a disk, and flush them to the medium."""
        with open_disk(disk, os.O_WRONLY) as file:
            os.pwrite(file, data, offset)
            os.fsync(file)

    def discard(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        """Discard bytes of a disk; OSError "not supported" if it cannot."""
        with open_disk(disk, os.O_RDWR) as file:
            block_io.discard(file, offset, length)

    def block_sizes(self, driver: VolumeDriver, disk: Disk) -> tuple[int, int]:
        """The logical and the physical block size, in bytes."""
        with open_disk(disk, os.O_RDONLY) as file:
            return block_io.block_sizes(file)

    def held_open(
        self, driver: VolumeDriver, disk: Disk
    ) -> AbstractContextManager[object]:
        """A context in which another process has the disk open."""
        return open_disk(disk, os.O_RDONLY)

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """Leave what a killed ``create`` can leave.

        Override it if that can be something else than nothing or a complete disk.
        """

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        """Leave what a killed ``create_from`` can leave."""

    def reboot(self, driver: VolumeDriver) -> None:
        """Do to the disks what a reboot does: deactivate them."""

    def power_cut(self, driver: VolumeDriver) -> bool:
        """Lose what was not flushed; return False if you cannot do that."""
        return False

    def failing_storage(
        self, driver: VolumeDriver, reads: bool
    ) -> AbstractContextManager[object] | None:
        """A context in which writes to the storage end with an I/O error (EIO).

        With ``reads`` reads do too. At its end do what an operator does when the
        storage works again, such as mounting it. None: not tried.
        """
        return None

    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object] | None:
        """A context in which another process has a foreign disk open.

        Override it if ``manages`` is yes. None: not tried.
        """
        return None

    def held_open_snapshot(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object] | None:
        """A context in which another process has a foreign snapshot open.

        Override it if ``manages_snapshots`` is yes. None: not tried.
        """
        return None

    def lose_snapshot(self, driver: VolumeDriver, snapshot: Snapshot) -> None:
        """Make a snapshot lose its bytes. Needed if ``loses_snapshots`` is yes."""
        raise NotImplementedError(
            "override `lose_snapshot`: make the snapshot lose its bytes"
        )

    def allocated(self, driver: VolumeDriver, disk: Disk) -> int | None:
        """The bytes that the storage has allocated for a disk; None: unknown."""
        if disk.kind is DiskKind.FILE:
            return os.stat(disk.path).st_blocks * 512
        return None

    def path_rejection(self, disk: Disk) -> str:
        """Why the target cannot export the path of the disk; empty if it can."""
        return export_paths.path_problem(disk)

    def watch_steps(self, driver: VolumeDriver, on_step: OnStep) -> VolumeDriver:
        """Return the same driver, which calls ``on_step`` right after each step.

        A step is one call of the root helper. If the driver does not use the root
        helper, the kit counts the lines of its code. Override this if the driver works
        by other means; ``fakes`` is an example.
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

    #: Commands and verbs of the root helper that change nothing.
    read_only_steps: Collection[str] = (
        "lio.check",
        "lio.observe",
        "lio.live",
        "lio.host",
    )

    #: What ``connection_info`` must have: its driver_volume_type, and further keys.
    #: Needed if the target's PROTOCOL is not in ``target.CONNECTION_KEYS``.
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

        This driver exports nothing when a test starts. A second call stands for a
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
        """Create a foreign export; return a function that reads its state."""
        raise NotImplementedError(
            "override `foreign_state`: export something under a foreign name;"
            " return a function that reads its live state"
        )

    @pytest.fixture
    def target(self, build: Callable[[], TargetDriver]) -> TargetDriver:
        """The target driver, checked as the daemon does when it starts."""
        target = build()
        target.check()
        return target

    def watch_steps(self, target: TargetDriver, on_step: OnStep) -> TargetDriver:
        """See ``VolumeFixtures.watch_steps``."""
        return interruption.watch_steps(target, on_step, self.read_only_steps)

    def slow_writes(self, disk: Disk) -> AbstractContextManager[Gate] | None:
        """A context in which writes to the disk wait until the gate is opened.

        ``reached`` of the gate is set when a write waits. Give the driver a deadline of
        a few seconds: the kit lets one call miss it. None: not tried.
        """
        return None


def new_volume(size: int) -> Volume:
    """A volume with a new id."""
    return Volume(str(uuid.uuid4()), size)
