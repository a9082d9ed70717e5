# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the LVM driver makes of LVM's answers. The texts are those of lvm2 2.03.16."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DiskBusy,
    DriverError,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from lunshare.drivers.lvm import claim, names, report
from lunshare.drivers.values import Capacity, Disk, Volume
from tests.unit.lvm_answers import (
    GONE,
    GROUP,
    HALF_FULL,
    LVS,
    POOL,
    SNAPSHOT,
    UUID,
    VG,
    Answering,
    Scripted,
    driver,
    failed,
    row,
    rows,
)

# reports


def test_a_report_of_volumes_is_read():
    names = [found.name for found in report.logical_volumes(LVS)]
    assert names == ["pool", f"volume-{UUID}", f"volume-{UUID}.new", "volume-mine"]
    assert report.logical_volumes(LVS)[1] == report.LogicalVolume(
        f"volume-{UUID}", 8388608, "pool"
    )


def test_a_report_of_segments_is_read():
    text = '{"report":[{"seg":[{"seg_size":"8388608",'
    text += '"seg_pe_ranges":"/dev/loop0:2052-2053"}]}]}'
    assert report.segments(text) == (report.Segment(8388608, "/dev/loop0:2052-2053"),)


def test_an_inactive_pool_has_no_levels():
    (pool,) = report.pools(POOL % ("thin-pool", "", "", "", ""))
    assert pool == report.Pool(8589934592, 0.0, 0.0, zeroes=False, health="")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"report": [{}]}', '{"report": [{"lv": [{}]}]}']
)
def test_an_unknown_form_is_refused(text):
    with pytest.raises(DriverError, match="not of the known form"):
        report.logical_volumes(text)


# disks and capacity


def test_disks_are_ours_and_in_our_pool():
    root = Scripted(lvs=LVS)
    path = f"/dev/{GROUP}/volume-{UUID}"
    assert driver(root).disks() == (Disk(UUID, path, 8388608),)
    assert driver(root, lvm_pool="other").disks() == ()
    assert driver(root, lvm_type="default").disks() == ()


def test_capacity_of_a_pool_counts_promises_of_others_too():
    found = driver(Answering(HALF_FULL, lvs=LVS)).capacity()
    assert found == Capacity(
        1 << 33,
        1 << 32,
        8388608 + 4194304,
        True,
        "",
        data_percent=50.0,
        metadata_percent=10.79,
    )


def test_volumes_are_listed_again_only_when_lvm_has_changed_the_group():
    root = Standing()
    made = driver(root)
    asked = ["vgs", "lvs", "lvs", "dmsetup"]
    assert _asked(root, made.capacity) == asked  # which disks it has is not known yet
    assert _asked(root, made.capacity) == ["lvm.commit", *asked]
    assert _asked(root, made.capacity) == ["lvm.commit", "dmsetup"]
    assert _asked(root, made.check) == ["lvm.commit", "lvchange"]
    root.commit = [12288, 512, 8]
    assert _asked(root, made.capacity) == ["lvm.commit", *asked]
    assert _asked(root, made.capacity) == ["lvm.commit", "dmsetup"]


@pytest.mark.parametrize(
    "answer", [None, DriverError("no such device")], ids=["nothing", "no disk"]
)
def test_a_disk_that_tells_no_commit_is_no_answer(answer):
    root = Scripted(vgs=VG % (30, ""), lvs=LVS)
    root.commit = answer
    made = driver(root, lvm_type="default")
    for _ in range(3):
        root.commands.clear()
        assert made.capacity() == Capacity(100, 30, 70, thin=False)
        assert [argv[0] for argv in root.commands][-2:] == ["vgs", "lvs"]


def test_a_disk_that_hangs_is_waited_for_once():
    root = Scripted(vgs=VG % (30, ""), lvs=LVS)
    made = driver(root, lvm_type="default")
    made.capacity()
    root.commit = DeadlineExceeded("reading the header of /dev/loop9", 60)
    root.commands.clear()
    with pytest.raises(DeadlineExceeded):
        made.capacity()
    assert root.commands == [("lvm.commit",)]


def test_a_group_without_metadata_on_a_known_disk_is_asked_each_time():
    group = (VG % (30, "")).replace('count":"1"', 'count":"0"')
    root = Scripted(vgs=group, lvs=LVS)
    made = driver(root, lvm_type="default")
    assert _asked(root, made.capacity) == _asked(root, made.capacity) == ["vgs", "lvs"]


def test_the_kernel_tells_how_full_an_active_pool_is():
    found = driver(Standing()).capacity()
    assert (found.data_percent, found.metadata_percent) == (43.75, 1.03)
    assert found.free == (1 << 33) * 5625 // 10000


@pytest.mark.parametrize(
    ("status", "levels"),
    [
        ("0 8 thin-pool 3 1/4 2/4 - rw discard_passdown queue_if_no_space - 1024", ""),
        ("0 8 thin-pool 3 1/4 4/4 - out_of_data_space no_discard_pass", "out_of_data"),
        ("0 8 thin-pool 3 1/4 2/4 - ro discard_passdown", "metadata_read_only"),
        ("0 8 thin-pool Fail", "failed"),
        ("0 8 thin-pool Error", "failed"),
    ],
)
def test_the_kernels_word_for_a_pool_is_lvms(status, levels):
    found = report.levels(status)
    assert found
    assert found.health == levels
    assert found.metadata_percent in (25.0, 100)


def test_what_is_no_pool_has_no_levels():
    assert report.levels("") is None
    with pytest.raises(DriverError, match="not of the known form: 0 8 thin-pool 3"):
        report.levels("0 8 thin-pool 3 half full")


class Standing(Answering):
    """A group with an active pool that has volumes."""

    def __init__(self) -> None:
        status = "0 16777216 thin-pool 9 21/2048 7/16 - rw discard_passdown"
        group = VG % (50, claim.tag())
        super().__init__(HALF_FULL, vgs=group, lvs=LVS, dmsetup=status, lvchange="")


def _asked(root: Scripted, call: Callable[[], object]) -> list[str]:
    """The programs that a call has run."""
    root.commands.clear()
    call()
    return [argv[0] for argv in root.commands]


# what LVM says


def test_a_missing_group_is_named_with_its_remedy():
    said = f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    with pytest.raises(Misconfigured, match=f"vgcreate {GROUP}"):
        driver(Scripted(vgs=failed(said))).check()


def test_an_unknown_disk_is_told():
    root = Scripted(lvchange=failed(GONE))
    with pytest.raises(UnknownDisk):
        driver(root).disk(UUID)


def test_delete_of_an_unknown_disk_is_success():
    driver(Scripted(lvremove=failed(GONE))).delete(UUID)


@pytest.mark.parametrize(
    "said",
    [
        f"  Logical volume lunshare/volume-{UUID} in use.",
        f"  Logical volume lunshare/volume-{UUID} contains a filesystem in use.",
        f"  Logical volume lunshare/volume-{UUID} is used by another device.",
    ],
)
def test_an_open_disk_is_busy(said):
    with pytest.raises(DiskBusy) as raised:
        driver(Scripted(lvremove=failed(said))).delete(UUID)
    assert raised.value.volume_id == UUID


def test_a_group_without_extents_has_no_room():
    said = f'  Volume group "{GROUP}" has insufficient free space (3 extents): 5.'
    root = Scripted(lvs='{"report":[{"lv":[]}]}', lvcreate=failed(said))
    with pytest.raises(NoSpace) as raised:
        driver(root, lvm_type="default").create(Volume(UUID, 8))
    assert raised.value.pool == GROUP


@pytest.mark.parametrize(
    ("data", "metadata", "word"),
    [("95.00", "1.00", "data"), ("1.00", "90.00", "metadata")],
)
def test_a_pool_that_is_nearly_full_takes_no_volume(data, metadata, word):
    root = Scripted(lvs=POOL % ("thin-pool", "zero", data, metadata, ""))
    with pytest.raises(NoSpace, match=f"its {word} is"):
        driver(root).create(Volume(UUID, 8))
    assert [argv[0] for argv in root.commands] == ["dmsetup", "dmsetup", "lvs"]


def test_the_kernel_says_whether_a_pool_takes_a_volume():
    status = "0 16777216 thin-pool 9 21/2048 16/16 - rw discard_passdown"
    root = Scripted(dmsetup=status)
    with pytest.raises(NoSpace, match="its data is 100% full"):
        driver(root).create(Volume(UUID, 8))
    assert [argv[0] for argv in root.commands] == ["dmsetup"]


def test_any_other_failure_is_passed_on():
    said = failed("  WARNING: Device for PV not found or rejected by a filter.")
    with pytest.raises(CommandFailed):
        driver(Scripted(lvremove=said)).delete(UUID)


def test_a_pool_that_is_no_pool_is_named():
    group, pool = VG % (9, claim.tag()), POOL % ("linear", "", "", "", "")
    root = Answering(pool, vgs=group, lvs=LVS)
    with pytest.raises(Misconfigured, match="lvcreate --type thin-pool"):
        driver(root).check()


def test_a_node_that_does_not_appear_ends_at_the_deadline():
    with pytest.raises(DeadlineExceeded):
        driver(Scripted(lvchange="")).disk(UUID)


# a pool that is nearly full


@pytest.mark.parametrize(
    ("levels", "options", "word"),
    [
        (("95.00", "1.00", ""), {}, "its data is 95% full"),
        (("94.99", "1.00", ""), {}, ""),
        (("94.99", "90.00", ""), {}, "its metadata is 90% full"),
        (("60.00", "1.00", ""), {"lvm_pool_data_limit": 60.0}, "its data is 60%"),
        (("1.00", "50.00", ""), {"lvm_pool_metadata_limit": 50.0}, "its metadata"),
        (("1.00", "1.00", "out_of_data"), {}, "out_of_data"),
    ],
)
def test_a_pool_says_why_it_is_closed(levels, options, word):
    root = Answering(POOL % ("thin-pool", "zero", *levels), lvs=LVS)
    closed = driver(root, **options).capacity().closed
    assert word in closed
    assert bool(word) is bool(closed)


@pytest.mark.parametrize("call", ["create_snapshot", "create_from"])
def test_a_pool_that_is_nearly_full_takes_no_copy(call):
    full = POOL % ("thin-pool", "zero", "99.00", "1.00", "")
    root = Answering(full, lvs=rows(row(f"volume-{UUID}", pool_lv="pool")))
    given = [SNAPSHOT] if call == "create_snapshot" else [Volume(UUID, 8), SNAPSHOT]
    with pytest.raises(NoSpace, match="its data is 99% full"):
        getattr(driver(root), call)(*given)
    assert {argv[0] for argv in root.commands} == {"lvs", "dmsetup"}


def test_a_group_without_a_free_extent_is_closed():
    root = Scripted(vgs=VG % (0, ""), lvs=LVS)
    found = driver(root, lvm_type="default").capacity()
    assert "all its extents are taken" in found.closed


# names


@pytest.mark.parametrize(
    "name",
    [
        f"volume-{UUID}",
        f"volume-{UUID}.new",
        f"volume-{UUID}.tail",
        f"volume-{UUID}.revert",
        f"_snapshot-{UUID}",
        f"deleted-{UUID}.8388608",
    ],
)
def test_what_we_named_is_ours(name):
    assert names.ours(name)
    assert names.valid(name)
    for other in (name[:-1] + "-", name + "x", "x" + name):
        assert not names.ours(other)


def test_the_size_before_deletion_is_in_the_name():
    name = names.deleted(8 << 20)
    assert names.deleted_size(name) == 8 << 20
    assert names.deleted(8 << 20) != name
    assert names.deleted_size(f"volume-{UUID}") is None


# a group that is gone


@pytest.mark.parametrize("call", ["disks", "capacity", "snapshots", "manageable"])
def test_a_group_that_vanished_is_named(call):
    said = f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    root = Scripted(vgs=failed(said), lvs=failed(said))
    with pytest.raises(Misconfigured, match=f"volume_group {GROUP}: there is no such"):
        getattr(driver(root), call)()


def test_a_disk_of_a_group_that_vanished_is_no_unknown_disk():
    said = f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    with pytest.raises(Misconfigured):
        driver(Scripted(lvchange=failed(said))).disk(UUID)
