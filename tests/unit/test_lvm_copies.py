# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, copies, wipes and disks of others: what the LVM driver decides itself."""

from __future__ import annotations

import pytest

from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DiskBusy,
    LostSnapshot,
    Stalled,
    UnknownDisk,
    UnknownReference,
    UnknownSnapshot,
    Unsupported,
)
from lunshare.drivers.lvm import claim, names, report, wiping
from lunshare.drivers.values import Manageable, Volume, Wipe
from tests.unit.lvm_answers import (
    GROUP,
    HALF_FULL,
    LVS,
    OTHER,
    SNAPSHOT,
    UUID,
    VG,
    Answering,
    Scripted,
    driver,
    failed,
    row,
    rows,
    thick,
)

# logical volumes looked at more closely


def test_a_close_look_is_read():
    lost = {"lv_snapshot_invalid": "snapshot invalid", "lv_device_open": "open"}
    text = rows(row("a", origin="b", lv_tags="x,y", lv_role="public,origin", **lost))
    (found,) = report.looked(text)
    assert (found.origin, found.tags, found.roles) == (
        "b",
        ("x", "y"),
        ("public", "origin"),
    )
    assert found.writable
    assert found.open
    assert found.lost
    assert not found.merging


def test_only_what_is_in_the_pool_and_not_ours_is_offered():
    thin = {"pool_lv": "pool", "lv_layout": "thin,sparse"}
    text = rows(
        row("root"),
        row("pool", lv_layout="thin,pool", lv_role="private"),
        row("theirs", **thin),
        row("busy", lv_device_open="open", **thin),
        row("sealed", lv_permissions="read-only", **thin),
        row("elsewhere", **thin | {"pool_lv": "other"}),
        row(f"volume-{UUID}", **thin),
        row(f"_snapshot-{UUID}", **thin),
    )
    found = driver(Scripted(lvs=text)).manageable()
    assert [each.reference for each in found] == ["theirs", "busy", "sealed"]
    assert found[0] == Manageable("theirs", 8 << 20)
    assert "it is open" in found[1].reason_not_safe
    assert "read-only" in found[2].reason_not_safe


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lv_layout": "raid,raid1"}, "raid"),
        ({"lv_role": "public,origin,thickorigin"}, "has snapshots"),
        ({"lv_role": "public,snapshot,thicksnapshot", "origin": "x"}, "is a snapshot"),
        ({"lv_permissions": "read-only"}, "read-only"),
    ],
)
def test_what_a_thick_volume_cannot_be_made_of(given, why):
    root = Scripted(lvs=rows(row("theirs", **given)))
    assert why in thick(root).manageable()[0].reason_not_safe
    with pytest.raises(UnknownReference, match=why):
        thick(root).manage(Volume(UUID, 8), "theirs")
    assert {argv[0] for argv in root.commands} == {"lvs"}


def test_an_open_volume_of_somebody_is_not_taken():
    root = Scripted(lvs=rows(row("theirs", lv_device_open="open")))
    with pytest.raises(DiskBusy, match="theirs"):
        thick(root).manage(Volume(UUID, 8), "theirs")


def test_a_volume_whose_snapshots_need_it_stays():
    text = rows(row(f"volume-{UUID}"), row(SNAPSHOT.name, origin=f"volume-{UUID}"))
    for call in ("delete", "unmanage"):
        root = Scripted(lvs=text)
        with pytest.raises(DiskBusy, match="snapshots"):
            getattr(thick(root), call)(UUID)
        assert [argv[0] for argv in root.commands] == ["lvs"]


def test_a_thick_delete_is_a_change_of_name():
    root = Scripted(lvs=rows(row(f"volume-{UUID}")), lvrename="")
    thick(root).delete(UUID)
    assert [argv[0] for argv in root.commands] == ["lvs", "lvrename"]
    assert names.deleted_size(root.commands[-1][-1]) == 8 << 20


def test_lvm_judges_whether_a_disk_is_open():
    said = f"  Logical volume {GROUP}/volume-{UUID} in use."
    text = rows(row(f"volume-{UUID}", lv_device_open="open"))
    root = Scripted(lvs=text, lvchange=failed(said))
    with pytest.raises(DiskBusy):
        thick(root).delete(UUID)
    root = Scripted(lvs=text, lvchange="", lvrename="")
    thick(root).delete(UUID)


# snapshots


def test_a_snapshot_that_ran_over_is_told():
    text = rows(
        row(f"volume-{UUID}"),
        row(
            SNAPSHOT.name,
            origin=f"volume-{UUID}",
            lv_snapshot_invalid="snapshot invalid",
        ),
    )
    with pytest.raises(LostSnapshot, match="lost its bytes: its room is full"):
        thick(Scripted(lvs=text)).revert(SNAPSHOT)
    with pytest.raises(UnknownSnapshot):
        thick(Scripted(lvs=text)).create_from(Volume(OTHER, 8 << 20), SNAPSHOT)


@pytest.mark.parametrize("percent", [1, 20, 100])
def test_the_reserve_is_what_the_option_says_and_the_table(percent):
    root = Scripted(lvs=rows(row(f"volume-{UUID}")), lvcreate="")
    thick(root, lvm_snapshot_reserve=percent).create_snapshot(SNAPSHOT)
    told = int(root.commands[-1][-2].removesuffix("b"))
    data = SNAPSHOT.size * percent // 100
    assert 0 < told - data - data // 4096 * 16 < 1 << 17


def test_a_volume_given_away_leaves_no_part_that_could_become_one():
    text = rows(row(f"volume-{UUID}"), row(f"volume-{UUID}.revert"))
    root = Scripted(lvs=text, lvremove="", lvrename="")
    thick(root).unmanage(UUID)
    assert [argv[0] for argv in root.commands] == ["lvs", "lvremove", "lvrename"]
    assert root.commands[1][-1] == f"{GROUP}/volume-{UUID}.revert"


@pytest.mark.parametrize(
    "said",
    [
        f"  Snapshot origin LV volume-{UUID} not found in Volume group lunshare.",
        f'  Failed to find logical volume "lunshare/volume-{UUID}"',
    ],
)
def test_a_snapshot_of_no_disk_is_told(said):
    root = Answering(HALF_FULL, lvs=rows(), lvcreate=failed(said))
    with pytest.raises(UnknownDisk):
        driver(root).create_snapshot(SNAPSHOT)
    with pytest.raises(UnknownSnapshot):
        driver(root).create_from(Volume(OTHER, 8), SNAPSHOT)


def test_a_revert_that_was_killed_is_finished_by_check():
    text = LVS.replace(f"volume-{UUID}.new", "x").replace(
        f'"volume-{UUID}"', f'"volume-{UUID}.revert"'
    )
    vgs = VG % (9, claim.tag())
    root = Answering(HALF_FULL, vgs=vgs, lvs=text, lvrename="", lvchange="")
    driver(root).check()
    (renamed,) = (argv for argv in root.commands if argv[0] == "lvrename")
    assert renamed[-3:] == (GROUP, f"volume-{UUID}.revert", f"volume-{UUID}")


def test_a_thick_revert_goes_on_with_its_own_merge_only():
    merging = {"lv_merging": "merging"}
    text = rows(row(f"volume-{UUID}", lv_tags="revert-x", **merging))
    with pytest.raises(DiskBusy, match="another snapshot"):
        thick(Scripted(lvs=text)).revert(SNAPSHOT)
    text = rows(row(f"volume-{UUID}", lv_tags=f"revert-{OTHER}", **merging))
    again = failed("lvcreate")
    with pytest.raises(CommandFailed, match="lvcreate"):
        thick(Scripted(lvs=text, lvcreate=again)).revert(SNAPSHOT)


class Merging(Scripted):
    """A merge that is as far as this list says, at each look, and ends with it."""

    def __init__(self, *levels: str) -> None:
        tags = {"lv_merging": "merging", "lv_tags": f"revert-{OTHER}"}
        super().__init__(lvs=rows(row(f"volume-{UUID}", **tags)), lvchange="")
        self.left = list(levels)
        self._answers["lvcreate"] = failed(
            f'Logical Volume "{SNAPSHOT.name}" already exists in volume group "x"'
        )

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] == "lvs" and "/" in argv[-1]:
            level = self.left.pop(0) if len(self.left) > 1 else self.left[0]
            if not level:
                self._answers["lvcreate"] = ""
            return level
        return super().run(*argv, timeout=timeout)


def test_a_merge_is_waited_for_as_long_as_it_comes_further():
    """A day was the most before, whatever it had done."""
    root = Merging(*[str(left) for left in range(8, 0, -1)], "")
    # It has been reverted then; no disk is ever active here.
    with pytest.raises(DeadlineExceeded, match="appearance"):
        thick(root, progress_timeout=1.5).revert(SNAPSHOT)
    assert root.left == [""]
    untagged = [argv for argv in root.commands if "--deltag" in argv]
    assert len(untagged) == 1


def test_a_merge_that_comes_no_further_is_told():
    with pytest.raises(Stalled, match=r"the merge of .* no progress for 0\.5 s"):
        thick(Merging("7"), progress_timeout=0.5).revert(SNAPSHOT)


def test_growing_a_thick_volume_under_snapshots_is_refused_untouched():
    text = rows(row(f"volume-{UUID}"), row(SNAPSHOT.name, origin=f"volume-{UUID}"))
    root = Scripted(lvs=text)
    with pytest.raises(Unsupported, match="delete them first"):
        thick(root).create(Volume(UUID, 16 << 20))
    assert [argv[0] for argv in root.commands] == ["lvs"]


# wiping


def test_what_is_left_to_wipe_is_its_size():
    text = LVS.replace(f"volume-{UUID}.new", f"deleted-{UUID}.12582912")
    found = thick(Scripted(lvs=text)).wipes()
    assert found == (Wipe(f"deleted-{UUID}.12582912", 12 << 20, 8 << 20),)


@pytest.mark.parametrize("name", ["deleted-x", f"volume-{UUID}", "root", "../sda"])
def test_nothing_else_is_wiped(name):
    root = Scripted()
    assert thick(root).wipe(name, 1 << 30) is None
    assert root.commands == []


@pytest.mark.parametrize(
    ("left", "most", "start"),
    [
        (12, 4, 8),
        (12, 7, 8),  # whole extents, and no more than it may
        (12, 8, 4),
        (12, 12, 0),
        (12, 1 << 40, 0),
        (12, 1, 8),  # one at least
        (4, 1, 0),
        (2, 1, 0),  # an extent size that has grown since
    ],
)
def test_a_step_of_a_wipe_ends_where_an_extent_does(left, most, start):
    assert wiping.next_start(left, most, 4) == start
