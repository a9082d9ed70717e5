# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The LVM driver on a real volume group: what only LVM has, beside the kit."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import devices
from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume, open_disk
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.values import Volume
from tests.stands.waiting import until
from tests.system.lio_node import run
from tests.system.lvm_kit import (
    GROUP,
    MAPPED_POOL,
    POOL,
    ThinFixtures,
    build_lvm,
    failing_group,
    fill,
    group,
    root,
)

__all__ = ["group", "root"]
pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


class Counting:
    """A root client that counts the commands."""

    def __init__(self, root: Root) -> None:
        self._root, self.commands = root, []  # type: Root, list[tuple[str, ...]]

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.commands.append(argv)
        return self._root.run(*argv, timeout=timeout)

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        return self._root.call(verb, timeout=timeout, **arguments)


@pytest.fixture
def thin(root: Root) -> LvmVolumes:
    return build_lvm(root)


@pytest.fixture
def volume(thin: LvmVolumes) -> Iterator[Volume]:
    volume = new_volume(8 * MIB)
    thin.create(volume)
    yield volume
    thin.delete(volume.id)


def test_active_disk_is_found_without_root(thin: LvmVolumes, volume: Volume) -> None:
    without = build_lvm(NoRoot())
    assert without.disk(volume.id) == thin.disk(volume.id)


def test_all_inactive_disks_are_activated_by_one_command(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    others = [new_volume(8 * MIB) for _ in range(2)]
    for other in others:
        thin.create(other)
    run("lvchange", "-an", *(f"{GROUP}/{v.name}" for v in (volume, *others)))
    counting = Counting(root)
    build_lvm(counting).check()
    assert [argv[0] for argv in counting.commands].count("lvchange") == 1
    assert all(Path(f"/dev/{GROUP}/{v.name}").exists() for v in (volume, *others))
    for other in others:
        thin.delete(other.id)


def test_activation_leaves_other_volumes_inactive(
    thin: LvmVolumes, volume: Volume
) -> None:
    run("lvcreate", "-y", "-L4m", "-an", "-Zn", "-n", "volume-asleep", GROUP)
    try:
        run("lvchange", "-an", f"{GROUP}/{volume.name}")
        thin.check()
        assert not Path(f"/dev/{GROUP}/volume-asleep").exists()
    finally:
        run("lvremove", "-y", f"{GROUP}/volume-asleep")


def test_queries_need_the_same_commands_with_more_volumes(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    def commands() -> list[str]:
        counting = Counting(root)
        driver = build_lvm(counting)
        driver.capacity()
        driver.disks()
        return [argv[0] for argv in counting.commands]

    before, more = commands(), [new_volume(MIB) for _ in range(3)]
    for each in more:
        thin.create(each)
    # The first listing does not know yet which disk shows the commit: it is read again.
    listing = ["vgs", "lvs"]
    assert commands() == before == [*listing, "lvs", *listing]
    for each in more:
        thin.delete(each.id)


def test_pool_stats_of_an_unchanged_group_start_no_process(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    counting = Counting(root)
    observer = build_lvm(counting)
    for _ in range(3):
        counting.commands.clear()
        observer.check()
        known = observer.capacity()
    assert counting.commands == []
    # None of these is a commit.
    run("lvchange", "-an", f"{GROUP}/{volume.name}")
    observer.check()
    assert Path(f"/dev/{GROUP}/{volume.name}").exists()
    more = new_volume(8 * MIB)
    thin.create(more)
    assert observer.capacity().provisioned == known.provisioned + more.size
    thin.delete(more.id)
    assert observer.capacity() == known


def test_pool_without_active_volumes_reports_how_full_it_is(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    fill(volume.name, b"f" * volume.size)
    known = thin.capacity()
    run("lvchange", "-an", f"{GROUP}/{volume.name}", f"{GROUP}/{POOL}")
    shown = run("lvs", "--noheadings", "-o", "data_percent", f"{GROUP}/{POOL}")
    assert shown.strip() == ""
    assert build_lvm(root).capacity() == known
    assert known.data_percent


def test_commit_read_from_a_disk_is_the_one_lvm_shows(root: Root) -> None:
    (disk,) = run("vgs", "--noheadings", "-o", "pv_name", GROUP).split()

    def shown() -> dict[str, int]:
        text = run("pvck", "--dump", "headers", disk)
        found = re.findall(r"raw_locn\[0\]\.(offset|size|checksum) (\S+)", text)
        return {name: int(value, 0) for name, value in found}

    seen = []
    for tag in ("--addtag", "--deltag"):
        run("vgchange", tag, "changed", GROUP)
        seen.append(root.call("lvm.commit", device=disk))
        assert seen[-1] == shown()
    assert seen[0] != seen[1]


def _dmsetup(device: str) -> str:
    words = run("dmsetup", "status", "--noflush", device).split()
    return " ".join(words[words.index("thin-pool") + 1 :])


def test_status_of_a_pool_is_the_one_dmsetup_shows(
    root: Root, thin: LvmVolumes
) -> None:
    volume = new_volume(8 * MIB)
    thin.create(volume)  # then the pool is below an LVM layer
    layer = f"{MAPPED_POOL}-tpool"
    try:
        shown = root.call("lvm.pool", group=GROUP, pool=POOL)
        assert shown.strip() == _dmsetup(layer)
        assert root.call("lvm.pool", group=GROUP, pool=volume.name) is None
    finally:
        thin.delete(volume.id)
    assert root.call("lvm.pool", group=GROUP, pool="nowhere") is None


def test_sectors_of_the_pool_are_those_of_its_volumes(
    thin: LvmVolumes, volume: Volume
) -> None:
    size = run("blockdev", "--getss", thin.disk(volume.id).path)
    assert thin.capacity().sector == int(size)


def test_dropped_cache_is_read_again(thin: LvmVolumes, volume: Volume) -> None:
    """LIO writes past the page cache of a volume, as a device above it does."""
    path = Path(thin.disk(volume.id).path)
    table = f"0 {volume.size // 512} linear {path} 0"
    run("dmsetup", "create", "kit-above", "--table", table)
    try:
        with path.open("rb") as held:  # the last close would drop the cache, too
            assert held.read(4) == bytes(4)
            with open("/dev/mapper/kit-above", "wb", buffering=0) as above:
                above.write(b"some" * 1024)
                os.fsync(above.fileno())
            devices.drop_cache(str(path))
            assert path.read_bytes()[:4] == b"some"
    finally:
        run("dmsetup", "remove", "--retry", "kit-above")


def test_missing_pool_is_named_with_its_remedy(root: Root) -> None:
    with pytest.raises(Misconfigured, match=r"lvcreate --type thin-pool .* nowhere"):
        build_lvm(root, lvm_pool="nowhere").check()


def test_pool_that_shows_old_chunks_is_refused(root: Root, thin: LvmVolumes) -> None:
    run("lvchange", "--zero", "n", f"{GROUP}/{POOL}")
    try:
        with pytest.raises(Misconfigured, match="lvchange --zero y"):
            thin.check()
    finally:
        run("lvchange", "--zero", "y", f"{GROUP}/{POOL}")
    thin.check()


def test_killed_thick_extend_is_repeated(root: Root) -> None:
    thick, volume = build_lvm(root, lvm_type="default"), new_volume(4 * MIB)
    thick.create(volume)
    tail = f"{volume.name}.tail"
    run("lvcreate", "-y", "-Wn", "-L4m", "-n", tail, GROUP)
    fill(tail, b"an earlier owner's" * 100)
    grown = thick.extend(Volume(volume.id, 12 * MIB))
    assert Path(grown.path).read_bytes() == bytes(12 * MIB)
    thick.delete(volume.id)
    assert volume.id not in run("lvs", "--noheadings", "-o", "lv_name", GROUP)


def test_create_waits_for_a_running_wipe_of_its_extents(root: Root) -> None:
    asked = Counting(root)
    thick, volume = build_lvm(asked, lvm_type="default"), new_volume(4 * MIB)
    part = f"{volume.name}.new"
    run("lvcreate", "-y", "-Wn", "-L4m", "-n", part, GROUP)
    wipe = os.open(f"/dev/{GROUP}/{part}", os.O_RDONLY)
    creating = threading.Thread(target=thick.create, args=(volume,))
    creating.start()
    # The second attempt comes after the first was refused.
    until(lambda: [words[0] for words in asked.commands].count("lvremove") > 1)
    os.close(wipe)
    creating.join(60)
    assert Path(thick.disk(volume.id).path).read_bytes() == bytes(4 * MIB)
    thick.delete(volume.id)


def test_wait_ends_when_udev_creates_the_node(thin: LvmVolumes, volume: Volume) -> None:
    path = thin.disk(volume.id).path
    run("lvchange", "-an", f"{GROUP}/{volume.name}")
    assert not Path(path).exists()
    waiting = threading.Thread(target=devices.wait_for_path, args=(path, 60))
    waiting.start()
    run("lvchange", "-ay", f"{GROUP}/{volume.name}")
    waiting.join(30)
    assert not waiting.is_alive()
    assert Path(path).exists()


def test_power_cut_of_the_kit_loses_what_was_not_flushed(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    with contextlib.ExitStack() as lost:
        with open_disk(thin.disk(volume.id), os.O_WRONLY) as file:
            os.pwrite(file, b"flushed", 0)
            os.fsync(file)
            os.pwrite(file, b"only in the cache", MIB)
            lost.enter_context(failing_group("drop_writes"))
        ThinFixtures().power_cut(thin)
    again = build_lvm(root)
    again.check()
    found = Path(again.disk(volume.id).path).read_bytes()
    assert found[:8] == b"flushed\0"
    assert not any(found[MIB:])


def test_two_backends_of_one_group_are_separate(
    root: Root, thin: LvmVolumes, volume: Volume
) -> None:
    thick, own = build_lvm(root, lvm_type="default"), new_volume(4 * MIB)
    thick.create(own)
    assert own.id not in {disk.volume_id for disk in thin.disks()}
    assert [disk.volume_id for disk in thick.disks()] == [own.id]
    thick.delete(own.id)


def test_unknown_disk_is_searched_once(root: Root) -> None:
    counting = Counting(root)
    build_lvm(counting).delete(str(uuid.uuid4()))
    assert [argv[0] for argv in counting.commands] == ["lvremove"]
