# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit bound to LVM on a real volume group, thin and thick."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.conformance.fixtures import (
    MIB,
    VolumeFixtures,
    defaults,
    open_disk,
)
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.protocol.export_paths import double_hyphens
from lunshare.drivers.values import Disk, Snapshot, Volume
from tests.system.broken_disk import Trouble, broken, table
from tests.system.lio_node import HelperProcess, run

# A separate group: the volumes of the node's daemon are not part of these tests. With
# the process id, because two runs of the kit may work at the same time.
GROUP, GROUP_SIZE = f"lunshare-kit-{os.getpid()}", 1024 * MIB
DISK = f"{GROUP}-disk"
POOL, POOL_SIZE = f"{GROUP}-pool", 64 * MIB
MAPPED_POOL = f"{double_hyphens(GROUP)}-{double_hyphens(POOL)}"
FOREIGN = "volume-of-another-owner"
NO_SPACE_TIMEOUT = Path("/sys/module/dm_thin_pool/parameters/no_space_timeout")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A helper process with the filters of the tree, and the client to it."""
    process = HelperProcess(tmp_path_factory.mktemp("helper"))
    yield process.client()
    process.stop()


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A volume group on a disk that can lose writes, with a thin pool."""
    store = tmp_path_factory.mktemp("group") / "store"
    with store.open("wb") as file:
        file.truncate(GROUP_SIZE)
    loop = run("losetup", "--find", "--show", str(store)).strip()
    run("dmsetup", "create", DISK, "--table", table(loop))
    # Debian's 69-lvm.rules activates a group seconds after its disk appeared. That
    # could be between a test's "lvchange -an" and its check.
    disk = f"/dev/mapper/{DISK}"
    run("vgcreate", "-qq", "--setautoactivation", "n", GROUP, disk)
    run("lvcreate", "-y", "--type", "thin-pool", "-L64m", "-n", POOL, GROUP)
    yield GROUP
    run("vgremove", "-qq", "--force", "--yes", GROUP)
    run("dmsetup", "remove", "--retry", DISK)
    run("losetup", "--detach", loop)


class CountingRoot:
    """The root helper, with the programs of the commands that it ran."""

    def __init__(self, root: Root) -> None:
        self._root, self.call = root, root.call
        self.programs: Counter[str] = Counter()

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.programs[argv[0]] += 1
        return self._root.run(*argv, timeout=timeout)


@contextlib.contextmanager
def failing_group(trouble: Trouble) -> Iterator[None]:
    """Inside the block the group's disk has this trouble."""
    below = run("dmsetup", "deps", "-o", "blkdevname", DISK)
    (name,) = re.findall(r"\((loop\d+)\)", below)
    with broken(DISK, f"/dev/{name}", trouble):
        yield


def pool_status() -> str:
    """The kernel's status of the thin pool, read without a commit of its metadata.

    Empty if the pool is not active: a test of thick volumes does not need it.
    """
    pools = run("dmsetup", "status", "--noflush", "--target", "thin-pool")
    return "".join(one for one in pools.splitlines() if one.startswith(MAPPED_POOL))


def repair_pool() -> None:
    """Do what docs/operations.md says, if the pool has met an error of its disk."""
    status = pool_status()
    if status and " rw " not in status:
        options = 'global/thin_check_options=["-q","--clear-needs-check-flag"]'
        run("vgchange", "-an", GROUP)
        run("vgchange", "-ay", "--config", options, GROUP)


def build_lvm(root: Root, **given: Any) -> LvmVolumes:
    """The driver on the kit's volume group."""
    options = defaults(LvmVolumes, **{"volume_group": GROUP, **given})
    return LvmVolumes("kit", options, root)


class LvmFixtures(VolumeFixtures):
    """What thin and thick have in common."""

    #: lvm.commit reads the header of a disk, the others what a thin pool uses.
    read_only_steps = (
        *(*VolumeFixtures.read_only_steps, "lvm.commit", "lvm.pool", "lvm.mapped"),
    )

    #: The helper reads a GiB of holes for a minute in an emulated guest. It fills files
    #: with the same verb, and tests/conformance/test_nfs.py has larger ones.
    largest_fill = 64 * MIB

    #: LVM lists all volumes at once, and creates each in a second in such a guest.
    many_volumes = 6

    @pytest.fixture
    def misconfigured(self, root: Root) -> VolumeDriver:
        return build_lvm(root, volume_group="lunshare-nowhere")

    @pytest.fixture
    def driver(self, build: Callable[[], VolumeDriver]) -> VolumeDriver:
        """Not checked each time: that is three commands of a second each under TCG."""
        return build()

    def reboot(self, driver: VolumeDriver) -> None:
        for disk in driver.disks():
            run("lvchange", "-an", disk.path)

    def power_cut(self, driver: VolumeDriver) -> bool:
        """Lose what is only in caches."""
        with failing_group("drop_writes"):
            run("vgchange", "-an", GROUP)
            run("blockdev", "--flushbufs", f"/dev/mapper/{DISK}")
        return True

    @contextlib.contextmanager
    def failing_storage(self, driver: VolumeDriver, reads: bool) -> Iterator[None]:
        """The group's disk fails. A thin pool may need a repair afterwards."""
        with failing_group("error" if reads else "error_writes"):
            yield
        repair_pool()

    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object]:
        return open_disk(Disk("", f"/dev/{GROUP}/{reference}", self.size), os.O_RDONLY)

    def held_open_snapshot(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[object]:
        run("lvchange", "--yes", "-ay", "-K", f"{GROUP}/{reference}")
        return self.held_open_reference(driver, reference)

    def foreign_name(self) -> str:
        """A name that lunshare does not give."""
        return f"kit-foreign-{uuid.uuid4().hex[:8]}"


class ThinFixtures(LvmFixtures):
    """Thin volumes in a small pool."""

    @pytest.fixture
    def build(self, root: Root) -> Callable[[], VolumeDriver]:
        return lambda: build_lvm(root)

    @pytest.fixture
    def other_backend(self, root: Root) -> Callable[[], VolumeDriver]:
        return lambda: build_lvm(root, lvm_type="default")

    @pytest.fixture
    def full_pool(
        self, driver: VolumeDriver
    ) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            with brief_freeze(), thin_volume("kit-filler", POOL_SIZE, b"f"):
                # Asked now that the pool is active: LVM does not know how full an
                # inactive one is. A repair of its metadata may leave chunks in use.
                # Not to the last chunk: a pool at 100 % freezes writes for a minute.
                left = driver.capacity().free - POOL_SIZE // 100
                fill("kit-filler", b"f" * left)
                yield

        return full

    @pytest.fixture
    def foreign_state(self) -> Iterator[Callable[[], object]]:
        with thin_volume(FOREIGN, 4 * MIB, b"foreign" * 1000):
            yield lambda: state(FOREIGN)

    @pytest.fixture
    def foreign_disk(self) -> Callable[[bytes], str]:
        def put(data: bytes) -> str:
            name, size = self.foreign_name(), f"-V{self.size}b"
            run("lvcreate", "-y", "-Wn", size, "--thin", "-n", name, f"{GROUP}/{POOL}")
            if data:  # udev reads what was open for writing, and so it is open
                fill(name, data)
            return name

        return put

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """lvcreate committed its metadata and died before it created the node."""
        driver.create(volume)
        run("lvchange", "-an", f"{GROUP}/{volume.name}")

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        """The same for a copy of a snapshot, which has not been extended yet."""
        of = f"{GROUP}/{snapshot.name}"
        run("lvcreate", "-y", "-s", "-ky", "-n", volume.name, of)


class ThickFixtures(LvmFixtures):
    """Linear volumes beside whatever else the group holds."""

    @pytest.fixture
    def build(self, root: Root) -> Callable[[], VolumeDriver]:
        return lambda: build_lvm(root, lvm_type="default")

    @pytest.fixture
    def other_backend(self, root: Root) -> Callable[[], VolumeDriver]:
        return lambda: build_lvm(root)

    @pytest.fixture
    def full_pool(self) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            run("lvcreate", "-y", "-Wn", "-l100%FREE", "-n", "kit-filler", GROUP)
            yield
            run("lvremove", "-y", f"{GROUP}/kit-filler")

        return full

    @pytest.fixture
    def foreign_state(self) -> Iterator[Callable[[], object]]:
        run("lvcreate", "-y", "-Wn", "-L4m", "-n", FOREIGN, GROUP)
        fill(FOREIGN, b"foreign" * 1000)
        yield lambda: state(FOREIGN)
        run("lvremove", "-y", f"{GROUP}/{FOREIGN}")

    @pytest.fixture
    def foreign_disk(self) -> Callable[[bytes], str]:
        def put(data: bytes) -> str:
            name, size = self.foreign_name(), f"-L{self.size}b"
            run("lvcreate", "-y", "-Wn", size, "-n", name, GROUP)
            if data:
                fill(name, data)
            return name

        return put

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        """Killed during the wipe: the extents still have bytes of another owner."""
        size = f"-L{volume.size}b"
        run("lvcreate", "-y", "-Wn", size, "-n", f"{volume.name}.new", GROUP)
        fill(f"{volume.name}.new", b"an earlier owner's" * 1000)

    def allocated(self, driver: VolumeDriver, disk: Disk) -> int:
        """The bytes that device-mapper maps directly to extents of disks."""
        rows = [
            line.split() for line in run("dmsetup", "table", disk.path).splitlines()
        ]
        return sum(
            int(length) * 512 for _, length, kind, *_ in rows if kind == "linear"
        )

    def lose_snapshot(self, driver: VolumeDriver, snapshot: Snapshot) -> None:
        """Write more to its origin than the snapshot has space for."""
        run("lvreduce", "-y", "-qq", "-f", "-L4m", f"{GROUP}/{snapshot.name}")
        disk = driver.disk(snapshot.volume_id)
        self.write(driver, disk, MIB, b"x" * (self.size - MIB))

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        """Killed during the copy."""
        self.leave_incomplete_disk(driver, volume)


@contextlib.contextmanager
def brief_freeze() -> Iterator[None]:
    """A pool at 100 % freezes writes for 5 s inside the block, not for a minute."""
    before = NO_SPACE_TIMEOUT.read_text()
    NO_SPACE_TIMEOUT.write_text("5")
    try:
        yield
    finally:
        NO_SPACE_TIMEOUT.write_text(before)


@contextlib.contextmanager
def thin_volume(name: str, size: int, data: bytes) -> Iterator[None]:
    """A foreign thin volume with these bytes."""
    run("lvcreate", "-y", f"-V{size}b", "--thin", "-n", name, f"{GROUP}/{POOL}")
    try:
        fill(name, data)
        yield
    finally:
        run("lvremove", "-y", f"{GROUP}/{name}")


def fill(name: str, data: bytes) -> None:
    """Write at the beginning of a logical volume, down to the medium."""
    with Path(f"/dev/{GROUP}/{name}").open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def state(name: str) -> tuple[str, str]:
    """LVM's row and the bytes of a logical volume."""
    # Not lv_attr: it also shows whether udev has it open now.
    fields = "lv_uuid,lv_size,lv_layout,lv_permissions,lv_active,lv_tags"
    row = run("lvs", "--noheadings", "-o", fields, f"{GROUP}/{name}")
    data = Path(f"/dev/{GROUP}/{name}").read_bytes()
    return row, hashlib.sha256(data).hexdigest()
