# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What others do with a volume group: claim it, rename it, open its volumes."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.backends import NodeBackend
from lunshare.agent.threads.limit import Limit
from lunshare.drivers.backend import Backend
from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, defaults, new_volume
from lunshare.drivers.errors import DiskBusy, DriverError, Misconfigured, UnknownDisk
from lunshare.drivers.targets.fake import FakeTarget
from tests.stands.waiting import until
from tests.system.lio_node import run
from tests.system.lvm_kit import (
    DISK,
    GROUP,
    POOL,
    CountingRoot,
    build_lvm,
    group,
    root,
    thin_volume,
)

__all__ = ["group", "root"]
pytestmark = pytest.mark.system


def test_second_daemon_of_the_node_is_refused(root: Root) -> None:
    build_lvm(root).check()
    build_lvm(root, lvm_type="default").check()
    hold = f"from lunshare.drivers.lvm import claim; claim.lock_on_node({GROUP!r})"
    line = [sys.executable, "-c", hold]
    second = subprocess.run(line, check=False, capture_output=True, text=True)
    assert second.returncode == 1
    assert "another process of this node works with it" in second.stderr


def test_daemon_of_another_node_is_refused_until_the_tag_is_removed(root: Root) -> None:
    thin, other = build_lvm(root), f"lunshare:{'0' * 32}:storage-2"
    thin.check()
    run("vgchange", "--addtag", other, GROUP)
    with pytest.raises(Misconfigured) as raised:
        thin.check()
    assert "storage-2" in raised.value.what
    run(*shlex.split(raised.value.remedy.partition(": ")[2]))
    thin.check()


def test_missing_group_is_reported_and_recovers(root: Root) -> None:
    thin, volume = build_lvm(root), new_volume(4 * MIB)
    disk = thin.create(volume)
    run("vgrename", GROUP, f"{GROUP}-gone")
    for call in (thin.check, thin.disks, lambda: thin.disk(volume.id)):
        with pytest.raises(Misconfigured, match="there is no such volume group"):
            call()
    run("vgrename", f"{GROUP}-gone", GROUP)
    thin.check()
    assert thin.disks() == (disk,)
    thin.delete(volume.id)


def test_volume_renamed_by_hand_is_unknown_and_can_be_managed(root: Root) -> None:
    thin, volume = build_lvm(root), new_volume(4 * MIB)
    thin.create(volume)
    run("lvrename", GROUP, volume.name, "renamed")
    with pytest.raises(UnknownDisk):
        thin.disk(volume.id)
    assert thin.disks() == ()
    assert [found.reference for found in thin.manageable()] == ["renamed"]
    disk = thin.manage(volume, "renamed")
    assert thin.disks() == (disk,)
    thin.delete(volume.id)


def test_open_volume_can_not_be_managed(root: Root) -> None:
    thin, volume = build_lvm(root), new_volume(4 * MIB)
    with thin_volume("kit-open", 4 * MIB, b"theirs"):
        held = os.open(f"/dev/{GROUP}/kit-open", os.O_RDONLY)
        [found] = thin.manageable()
        assert "it is open" in found.problem
        with pytest.raises(DiskBusy):
            thin.manage(volume, "kit-open")
        os.close(held)
    assert thin.disks() == ()


def test_pools_are_not_manageable(root: Root) -> None:
    assert build_lvm(root, lvm_type="default").manageable() == ()
    assert POOL in run("lvs", "--noheadings", "-o", "lv_name", GROUP)


class SecondDisk:
    """A second disk of the group, which can be taken away."""

    def __init__(self, store: Path) -> None:
        self._store = str(store)
        with store.open("wb") as file:
            file.truncate(256 * MIB)
        self.path = run("losetup", "--find", "--show", self._store).strip()
        run("vgextend", "-qq", GROUP, self.path)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Nothing is allocated on it inside the block."""
        run("pvchange", "-qq", "-xn", self.path)
        yield
        run("pvchange", "-qq", "-xy", self.path)

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """It is away inside the block."""
        self.take_away()
        try:
            yield
        finally:
            self.bring_back()

    def take_away(self) -> None:
        """udev has reported it afterwards."""
        run("losetup", "-d", self.path)
        run("udevadm", "settle")

    def bring_back(self) -> None:
        """udev has reported it afterwards."""
        run("losetup", self.path, self._store)
        run("udevadm", "settle")

    def close(self) -> None:
        run("vgreduce", "-qq", GROUP, self.path)
        run("losetup", "-d", self.path)


@pytest.fixture
def second_disk(tmp_path: Path, root: Root) -> Iterator[SecondDisk]:
    disk = SecondDisk(tmp_path / "second")
    yield disk
    disk.close()


def test_lost_disk_does_not_keep_the_other_volumes_from_being_activated(
    root: Root, second_disk: SecondDisk
) -> None:
    """After a boot without it: LVM activates what it can, and reports an error.

    The backend was down then, so no host had access to any of its volumes.
    """
    thick = build_lvm(root, lvm_type="default")
    thick.check()
    kept, lost = new_volume(4 * MIB), new_volume(4 * MIB)
    with second_disk.full():
        disk = thick.create(kept)
    run("pvchange", "-qq", "-xn", f"/dev/mapper/{DISK}")
    thick.create(lost)
    run("pvchange", "-qq", "-xy", f"/dev/mapper/{DISK}")
    for volume in (kept, lost):
        run("lvchange", "-an", f"{GROUP}/{volume.name}")
    with second_disk.lost():
        booted = build_lvm(root, lvm_type="default")
        booted.check()
        assert booted.disk(kept.id) == disk
        assert "cannot activate every volume" in booted.capacity().closed
        assert "cannot activate every volume" in booted.lost(lost.id)
        assert booted.lost(kept.id) == ""
        with pytest.raises(DriverError):
            booted.disk(lost.id)
    booted.check()
    assert booted.capacity().closed == booted.lost(lost.id) == ""
    assert booted.disk(lost.id).size == 4 * MIB
    for volume in (kept, lost):
        booted.delete(volume.id)
    for wipe in booted.wipes():
        booted.wipe(wipe.name, wipe.size)


class FollowedBackend(NodeBackend):
    """A backend that no timer checks, and the commands that its checks have run."""

    def __init__(self, root: Root) -> None:
        self.root = CountingRoot(root)
        self.volumes = build_lvm(self.root, lvm_type="default")
        target = FakeTarget("kit", defaults(FakeTarget), root)
        super().__init__("kit", Backend(self.volumes, target), {}, Limit(1))

    @contextlib.contextmanager
    def checked(self, closed: str) -> Iterator[None]:
        """What is done inside starts a check, which finds this; no timer does."""
        before = self.root.programs["vgs"]
        yield
        until(lambda: self.root.programs["vgs"] > before, "a check")
        until(lambda: self.capacity and closed in self.capacity.closed)

    def __hash__(self) -> int:
        return id(self)


def test_event_of_a_lost_or_returned_disk_starts_a_check(
    root: Root, second_disk: SecondDisk
) -> None:
    """Only the event of udev starts a check; and a check takes some LVM commands."""
    backend, kept, lost = (
        FollowedBackend(root),
        new_volume(4 * MIB),
        new_volume(4 * MIB),
    )
    thick, away = backend.volumes, "1 of its disks are lost"
    with second_disk.full():
        thick.create(kept)
    backend.follow_storage()
    backend.start_check()
    until(lambda: backend.up and backend.capacity and not backend.capacity.closed)
    with backend.checked(closed=away):  # no volume is on it, and all are active
        second_disk.take_away()
    assert thick.lost(kept.id) == ""
    with backend.checked(closed=""):
        second_disk.bring_back()
    until(lambda: backend.capacity and not backend.capacity.closed)
    run("pvchange", "-qq", "-xn", f"/dev/mapper/{DISK}")
    thick.create(lost)
    run("pvchange", "-qq", "-xy", f"/dev/mapper/{DISK}")
    run("lvchange", "-an", f"{GROUP}/{lost.name}")
    with backend.checked(closed="cannot activate every volume"):
        second_disk.take_away()
    assert thick.lost(lost.id)
    assert thick.lost(kept.id) == ""
    with backend.checked(closed=""):
        second_disk.bring_back()
    until(lambda: thick.lost(lost.id) == "")
    for volume in (kept, lost):
        thick.delete(volume.id)
    for wipe in thick.wipes():
        thick.wipe(wipe.name, wipe.size)
