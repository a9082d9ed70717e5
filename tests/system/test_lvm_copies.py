# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, reverts and wipes on a real volume group, killed at their steps."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import LostSnapshot, NoSpace, Unsupported
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.values import Snapshot, Volume
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, build_lvm, fill, group, root

__all__ = ["group", "root"]
pytestmark = pytest.mark.system

OLD, NEW = b"the snapshot's" * 300, b"written later " * 300


class Killed(BaseException):
    """Acts as kill -9 of the daemon: the root command has ended, its caller is gone."""


class KilledRoot:
    """A root client that raises Killed after a number of calls."""

    def __init__(self, root: Root, commands: int) -> None:
        self._root, self._left = root, commands

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self._step()
        return self._root.run(*argv, timeout=timeout)

    def _step(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        if verb != "lvm.commit":
            self._step()
        return self._root.call(verb, timeout=timeout, **arguments)


class Scene:
    """A volume whose first bytes are NEW, and OLD in its snapshot."""

    def __init__(self, root: Root, **options: Any) -> None:
        self._root, self._options = root, options
        self.driver = self.again()
        self.volume = new_volume(8 * MIB)
        self.snapshot = Snapshot(str(uuid.uuid4()), self.volume.id, self.volume.size)
        self.driver.create(self.volume)
        fill(self.volume.name, OLD)
        self.driver.create_snapshot(self.snapshot)
        fill(self.volume.name, NEW)

    def again(self, commands: int = -1) -> LvmVolumes:
        """A new driver, which is killed after this number of commands."""
        return build_lvm(KilledRoot(self._root, commands), **self._options)

    def bytes(self) -> bytes:
        """The first bytes of the volume."""
        path = Path(self.driver.disk(self.volume.id).path)
        with path.open("rb", buffering=0) as file:
            return file.read(len(OLD))

    def clear(self) -> None:
        self.driver.delete_snapshot(self.snapshot.id)
        self.driver.delete(self.volume.id)
        wipe_all(self.driver)


def wipe_all(driver: LvmVolumes) -> None:
    """Wipe all deleted disks."""
    for left in driver.wipes():
        assert driver.wipe(left.name, left.size) is None


@contextlib.contextmanager
def scene(root: Root, **options: Any) -> Iterator[Scene]:
    created = Scene(root, **options)
    yield created
    created.clear()


def names() -> set[str]:
    return set(run("lvs", "--noheadings", "-o", "lv_name", GROUP).split())


# Reverts


@pytest.mark.parametrize("steps", [2, 3])
def test_killed_thin_revert_leaves_a_disk_and_is_completed(
    root: Root, steps: int
) -> None:
    with scene(root) as created:
        with pytest.raises(Killed):
            created.again(steps).revert(created.snapshot)
        assert f"{created.volume.name}.revert" in names()
        assert (created.volume.name in names()) is (steps < 3)
        again = created.again()
        again.check()
        assert created.bytes() == (OLD if steps == 3 else NEW)
        assert created.volume.id in {disk.volume_id for disk in again.disks()}
        again.revert(created.snapshot)
        assert created.bytes() == OLD
        assert again.snapshots() == (created.snapshot.id,)
        assert f"{created.volume.name}.revert" not in names()


def test_killed_thin_revert_is_completed_without_check(root: Root) -> None:
    with scene(root) as created:
        with pytest.raises(Killed):
            created.again(3).revert(created.snapshot)
        created.again().revert(created.snapshot)
        assert created.bytes() == OLD


def test_volume_with_a_killed_revert_is_deleted_completely(root: Root) -> None:
    with scene(root) as created:
        with pytest.raises(Killed):
            created.again(2).revert(created.snapshot)
        created.again().delete(created.volume.id)
        assert not {name for name in names() if created.volume.id in name}


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_killed_thick_revert_is_completed(root: Root, steps: int) -> None:
    with scene(root, lvm_type="default") as created:
        with pytest.raises(Killed):
            created.again(steps).revert(created.snapshot)
        again = created.again()
        again.check()
        assert created.bytes() == (NEW if steps == 2 else OLD)
        again.revert(created.snapshot)
        assert created.bytes() == OLD
        assert again.snapshots() == (created.snapshot.id,)
        assert "revert" not in run("lvs", "--noheadings", "-o", "lv_tags", GROUP)


def test_revert_waits_for_a_postponed_merge(root: Root) -> None:
    with scene(root, lvm_type="default") as created:
        name = f"{GROUP}/{created.snapshot.name}"
        held = os.open(f"/dev/{GROUP}/{created.volume.name}", os.O_RDONLY)
        said = run("lvconvert", "--yes", "--mergesnapshot", name)
        os.close(held)
        assert "next activation" in said
        run("lvchange", "--addtag", f"revert-{created.snapshot.id}", name_of(created))
        created.again().revert(created.snapshot)
        assert created.bytes() == OLD
        assert created.driver.snapshots() == (created.snapshot.id,)


def name_of(created: Scene) -> str:
    return f"{GROUP}/{created.volume.name}"


# Thick snapshots


def test_overflowed_snapshot_is_never_read(root: Root) -> None:
    thick = build_lvm(root, lvm_type="default", lvm_snapshot_reserve=1)
    volume, target = new_volume(32 * MIB), new_volume(32 * MIB)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
    thick.create(volume)
    thick.create_snapshot(snapshot)
    new = b"x" * (24 * MIB)
    fill(volume.name, new)
    for call in (
        lambda: thick.create_from(target, snapshot),
        lambda: thick.revert(snapshot),
    ):
        with pytest.raises(LostSnapshot):
            call()
    assert [disk.volume_id for disk in thick.disks()] == [volume.id]
    assert thick.snapshots() == (snapshot.id,)
    with Path(f"/dev/{GROUP}/{volume.name}").open("rb") as file:
        assert file.read(len(new)) == new
    thick.delete_snapshot(snapshot.id)
    thick.delete(volume.id)
    wipe_all(thick)


def test_full_reserve_survives_a_full_rewrite_and_forbids_extend(root: Root) -> None:
    with scene(root, lvm_type="default") as created:
        thick, size = created.driver, created.driver.disk(created.volume.id).size
        fill(created.volume.name, b"y" * size)
        before = names()
        with pytest.raises(Unsupported, match="has snapshots"):
            thick.extend(Volume(created.volume.id, 2 * size))
        assert thick.disk(created.volume.id).size == size
        assert names() == before
        thick.revert(created.snapshot)
        content = Path(f"/dev/{GROUP}/{created.volume.name}").read_bytes()
        assert content == OLD + bytes(size - len(OLD))


def test_snapshot_larger_than_free_space_is_refused(root: Root) -> None:
    thick, volume = build_lvm(root, lvm_type="default"), new_volume(8 * MIB)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
    thick.create(volume)
    free = thick.capacity().free - 8 * MIB  # and the table of exceptions needs more
    run("lvcreate", "-y", "-Wn", f"-L{free}b", "-n", "kit-filler", GROUP)
    try:
        with pytest.raises(NoSpace):
            thick.create_snapshot(snapshot)
        assert thick.snapshots() == ()
    finally:
        run("lvremove", "-y", f"{GROUP}/kit-filler")
    thick.delete(volume.id)
    wipe_all(thick)


# Wipes


def test_killed_wipe_continues_and_frees_only_zeros(root: Root) -> None:
    thick, volume = build_lvm(root, lvm_type="default"), new_volume(12 * MIB)
    thick.create(volume)
    fill(volume.name, b"secret" * (2 * MIB))
    [extents] = _extents(volume.name)
    thick.delete(volume.id)
    [wipe] = thick.wipes()
    assert (wipe.size, wipe.left) == (12 * MIB, 12 * MIB)
    # The group's extent size, the head, and the end are zeros; it did not shrink.
    with pytest.raises(Killed):
        build_lvm(KilledRoot(root, 3), lvm_type="default").wipe(wipe.name, 5 * MIB)
    again = build_lvm(root, lvm_type="default")
    assert again.wipes() == (wipe,)
    left = again.wipe(wipe.name, 5 * MIB)
    assert left is not None
    # A step frees complete extents, and at most what it may wipe.
    assert left.left == 8 * MIB
    assert again.wipe(wipe.name, 1) is not None
    assert again.wipes()[0].left == 4 * MIB
    run("lvchange", "-an", f"{GROUP}/{wipe.name}")
    assert again.wipe(wipe.name, 1 << 40) is None
    assert again.wipes() == ()
    run("lvcreate", "-y", "-Wn", "-Zn", "-L12m", "-n", "raw", GROUP, extents)
    try:
        assert Path(f"/dev/{GROUP}/raw").read_bytes() == bytes(12 * MIB)
    finally:
        run("lvremove", "-y", f"{GROUP}/raw")


def _extents(name: str) -> list[str]:
    fields = ("--noheadings", "--segments", "-o", "seg_pe_ranges")
    return run("lvs", *fields, f"{GROUP}/{name}").split()


# A full pool


@pytest.fixture
def tiny() -> Iterator[str]:
    """A separate thin pool, which fails writes when it is full."""
    run("lvcreate", "-y", "--type", "thin-pool", "-L16m", "-n", "tiny", GROUP)
    run("lvchange", "--errorwhenfull", "y", f"{GROUP}/tiny")
    yield "tiny"
    run("lvremove", "-y", f"{GROUP}/tiny")


def test_full_pool_preserves_acknowledged_writes(root: Root, tiny: str) -> None:
    thin = build_lvm(root, lvm_pool=tiny)
    victim, greedy = new_volume(8 * MIB), new_volume(64 * MIB)
    for volume in (victim, greedy):
        thin.create(volume)
    fill(victim.name, OLD)
    landed = _write_until_full(f"/dev/{GROUP}/{greedy.name}")
    assert 0 < landed < 16 * MIB
    fill(victim.name, NEW)
    capacity = thin.capacity()
    assert capacity.data_percent == 100.0
    assert capacity.closed
    snapshot = Snapshot(str(uuid.uuid4()), victim.id, victim.size)
    for call in (
        lambda: thin.create(new_volume(MIB)),
        lambda: thin.extend(Volume(victim.id, 16 * MIB)),
        lambda: thin.create_snapshot(snapshot),
    ):
        with pytest.raises(NoSpace, match="tiny has no free space"):
            call()
    run("lvextend", "-y", "-L+16m", f"{GROUP}/{tiny}")
    assert thin.capacity().closed == ""
    run("lvchange", "-an", *(f"{GROUP}/{v.name}" for v in (victim, greedy)))
    thin.check()
    with Path(f"/dev/{GROUP}/{victim.name}").open("rb") as file:
        assert file.read(len(NEW)) == NEW
    with Path(f"/dev/{GROUP}/{greedy.name}").open("rb") as file:
        assert file.read(landed) == b"g" * landed
    thin.create_snapshot(snapshot)
    thin.delete_snapshot(snapshot.id)
    for volume in (victim, greedy):
        thin.delete(volume.id)


def _write_until_full(path: str) -> int:
    """How many bytes were acknowledged, each down to the medium."""
    landed, piece = 0, b"g" * MIB
    with Path(path).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(piece)
                os.fsync(file.fileno())
                landed += len(piece)
        except OSError:
            return landed
