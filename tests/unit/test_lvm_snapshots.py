# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, reverts, wipes and foreign volumes in the LVM driver."""

from __future__ import annotations

import json

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
from lunshare.drivers.lvm import brief_opens, claim, deleted_volumes, lvm_reports, names
from lunshare.drivers.values import Manageable, Volume, Wipe
from tests.unit.lvm_answers import (
    GROUP,
    LVS,
    OTHER,
    SNAPSHOT,
    THIN_POOL,
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

# logical volumes with all fields


def test_report_of_details_is_parsed():
    lost = {"lv_snapshot_invalid": "snapshot invalid", "lv_device_open": "open"}
    text = rows(row("a", origin="b", lv_tags="x,y", lv_role="public,origin", **lost))
    (found,) = lvm_reports.volume_details(text)
    assert (found.origin, found.tags, found.roles) == (
        "b",
        ("x", "y"),
        ("public", "origin"),
    )
    assert found.writable
    assert found.open
    assert found.lost
    assert not found.merging


def test_only_foreign_volumes_of_the_pool_are_manageable():
    thin = {"pool_lv": "pool", "lv_layout": "thin,sparse"}
    text = rows(
        row("root"),
        row("pool", lv_layout="thin,pool", lv_role="private"),
        row("theirs", **thin),
        row("idle", lv_permissions="unknown", lv_device_open="unknown", **thin),
        row("busy", lv_device_open="open", **thin),
        row("sealed", lv_permissions="read-only", **thin),
        row("elsewhere", **thin | {"pool_lv": "other"}),
        row(f"volume-{UUID}", **thin),
        row(f"_snapshot-{UUID}", **thin),
    )
    found = driver(Scripted(lvs=text)).manageable()
    assert [each.reference for each in found] == ["theirs", "idle", "busy", "sealed"]
    assert found[0] == Manageable("theirs", 8 << 20)
    assert found[1] == Manageable("idle", 8 << 20)
    assert "it is open" in found[2].problem
    assert "read-only" in found[3].problem


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lv_layout": "raid,raid1"}, "raid"),
        ({"lv_role": "public,origin,thickorigin"}, "has snapshots"),
        ({"lv_role": "public,snapshot,thicksnapshot", "origin": "x"}, "is a snapshot"),
        ({"lv_permissions": "read-only"}, "read-only"),
    ],
)
def test_unsuitable_thick_volume_cannot_be_managed(given, why):
    root = Scripted(lvs=rows(row("theirs", **given)))
    assert why in thick(root).manageable()[0].problem
    with pytest.raises(UnknownReference, match=why):
        thick(root).manage(Volume(UUID, 8), "theirs")
    assert {argv[0] for argv in root.commands} == {"lvs"}


def test_open_foreign_volume_cannot_be_managed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(brief_opens, "_SECONDS", 0.0)
    root = Scripted(lvs=rows(row("theirs", lv_device_open="open")))
    with pytest.raises(DiskBusy, match="theirs"):
        thick(root).manage(Volume(UUID, 8), "theirs")


def test_volume_with_snapshots_cannot_be_deleted_or_unmanaged():
    text = rows(row(f"volume-{UUID}"), row(SNAPSHOT.name, origin=f"volume-{UUID}"))
    for call in ("delete", "unmanage"):
        root = Scripted(lvs=text)
        with pytest.raises(DiskBusy, match="snapshots"):
            getattr(thick(root), call)(UUID)
        assert [argv[0] for argv in root.commands] == ["lvs"]


def test_delete_of_a_thick_volume_renames_it():
    root = Scripted(lvs=rows(row(f"volume-{UUID}")), lvrename="")
    thick(root).delete(UUID)
    assert [argv[0] for argv in root.commands] == ["lvs", "lvrename"]
    assert names.deleted_size(root.commands[-1][-1]) == 8 << 20


def test_lvm_decides_whether_a_disk_is_open():
    stderr = f"  Logical volume {GROUP}/volume-{UUID} in use."
    text = rows(row(f"volume-{UUID}", lv_device_open="open"))
    root = Scripted(lvs=text, lvchange=failed(stderr))
    with pytest.raises(DiskBusy):
        thick(root).delete(UUID)
    root = Scripted(lvs=text, lvchange="", lvrename="")
    thick(root).delete(UUID)


# snapshots


def test_overflowed_snapshot_is_lost():
    text = rows(
        row(f"volume-{UUID}"),
        row(
            SNAPSHOT.name,
            origin=f"volume-{UUID}",
            lv_snapshot_invalid="snapshot invalid",
        ),
    )
    with pytest.raises(LostSnapshot, match="lost its bytes: its reserve is full"):
        thick(Scripted(lvs=text)).revert(SNAPSHOT)
    with pytest.raises(UnknownSnapshot):
        thick(Scripted(lvs=text)).create_from(Volume(OTHER, 8 << 20), SNAPSHOT)


@pytest.mark.parametrize("percent", [1, 20, 100])
def test_reserve_is_the_option_plus_its_metadata(percent):
    root = Scripted(lvs=rows(row(f"volume-{UUID}")), lvcreate="")
    thick(root, lvm_snapshot_reserve=percent).create_snapshot(SNAPSHOT)
    reserve = int(root.commands[-1][-2].removesuffix("b"))
    data = SNAPSHOT.size * percent // 100
    assert 0 < reserve - data - data // 4096 * 16 < 1 << 17


def test_unmanage_removes_the_parts_of_the_volume():
    text = rows(row(f"volume-{UUID}"), row(f"volume-{UUID}.revert"))
    root = Scripted(lvs=text, lvremove="", lvrename="")
    thick(root).unmanage(UUID)
    assert [argv[0] for argv in root.commands] == ["lvs", "lvremove", "lvrename"]
    assert root.commands[1][-1] == f"{GROUP}/volume-{UUID}.revert"


@pytest.mark.parametrize(
    "stderr",
    [
        f"  Snapshot origin LV volume-{UUID} not found in Volume group lunshare.",
        f'  Failed to find logical volume "lunshare/volume-{UUID}"',
    ],
)
def test_snapshot_of_an_unknown_disk_is_refused(stderr):
    root = Answering(THIN_POOL, lvs=rows(), lvcreate=failed(stderr))
    with pytest.raises(UnknownDisk):
        driver(root).create_snapshot(SNAPSHOT)
    with pytest.raises(UnknownSnapshot):
        driver(root).create_from(Volume(OTHER, 8), SNAPSHOT)


def test_check_finishes_a_killed_revert():
    text = LVS.replace(f"volume-{UUID}.new", "x").replace(
        f'"volume-{UUID}"', f'"volume-{UUID}.revert"'
    )
    vgs = VG % (9, claim.node_tag())
    root = Answering(THIN_POOL, vgs=vgs, lvs=text, lvrename="", lvchange="")
    driver(root).check()
    (renamed,) = (argv for argv in root.commands if argv[0] == "lvrename")
    assert renamed[-3:] == (GROUP, f"volume-{UUID}.revert", f"volume-{UUID}")


def test_revert_resumes_only_its_own_merge():
    merging = {"lv_merging": "merging"}
    text = rows(row(f"volume-{UUID}", lv_tags="revert-x", **merging))
    with pytest.raises(DiskBusy, match="another snapshot"):
        thick(Scripted(lvs=text)).revert(SNAPSHOT)
    root = Merging(MERGED)
    root._answers["lvcreate"] = failed("lvcreate")
    with pytest.raises(CommandFailed, match="lvcreate"):
        thick(root).revert(SNAPSHOT)


#: A merge that is complete, before and after LVM removes the snapshot.
MERGED, REMOVED = "merged", "removed"


class Merging(Scripted):
    """A merge whose progress is the next item of a list at each query."""

    def __init__(self, *levels: str) -> None:
        tags = {"lv_merging": "merging", "lv_tags": f"revert-{OTHER}"}
        super().__init__(lvs=rows(row(f"volume-{UUID}", **tags)), lvchange="")
        self.left = list(levels)
        self._answers["lvcreate"] = failed(
            f'Logical Volume "{SNAPSHOT.name}" already exists in volume group "x"'
        )

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] != "lvs" or "/" not in argv[-1]:
            return super().run(*argv, timeout=timeout)
        self.commands.append(argv)
        level = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if level == REMOVED:
            self._answers["lvcreate"] = ""
        merging = "" if level in (MERGED, REMOVED) else "merging"
        return rows(json.dumps({"lv_merging": merging, "data_percent": level}))


def test_revert_waits_while_the_merge_makes_progress():
    """An earlier version waited one day at most."""
    root = Merging(*[str(left) for left in range(8, 0, -1)], REMOVED)
    # The revert is done then. No disk is ever active in this test.
    with pytest.raises(DeadlineExceeded, match="appearance"):
        thick(root, progress_timeout=1.5).revert(SNAPSHOT)
    assert root.left == [REMOVED]
    untagged = [argv for argv in root.commands if "--deltag" in argv]
    assert len(untagged) == 1


def test_revert_changes_nothing_while_it_waits_for_the_merge():
    """It tried to create the snapshot at each poll: a change of the group."""
    root = Merging("7.00", "3.50", REMOVED)
    with pytest.raises(DeadlineExceeded, match="appearance"):
        thick(root).revert(SNAPSHOT)
    programs = [argv[0] for argv in root.commands]
    assert programs[:5] == ["lvs"] * 4 + ["lvcreate"]
    assert programs.count("lvcreate") == 1


def test_revert_waits_until_lvm_has_removed_the_merged_snapshot():
    root = Merging("7.00", MERGED, REMOVED)
    with pytest.raises(DeadlineExceeded, match="appearance"):
        thick(root).revert(SNAPSHOT)
    assert [argv[0] for argv in root.commands].count("lvcreate") == 2


def test_revert_fails_when_the_merge_stalls():
    with pytest.raises(Stalled, match=r"the merge of .* no progress for 0\.5 s"):
        thick(Merging("7"), progress_timeout=0.5).revert(SNAPSHOT)


def test_thick_volume_with_snapshots_cannot_be_extended():
    text = rows(row(f"volume-{UUID}"), row(SNAPSHOT.name, origin=f"volume-{UUID}"))
    root = Scripted(lvs=text)
    with pytest.raises(Unsupported, match="delete them first"):
        thick(root).create(Volume(UUID, 16 << 20))
    assert [argv[0] for argv in root.commands] == ["lvs"]


# wiping


def test_size_of_a_deleted_volume_is_what_is_left_to_wipe():
    text = LVS.replace(f"volume-{UUID}.new", f"deleted-{UUID}.12582912")
    found = thick(Scripted(lvs=text)).wipes()
    assert found == (Wipe(f"deleted-{UUID}.12582912", 12 << 20, 8 << 20),)


@pytest.mark.parametrize("name", ["deleted-x", f"volume-{UUID}", "root", "../sda"])
def test_wipe_ignores_names_of_other_volumes(name):
    root = Scripted()
    assert thick(root).wipe(name, 1 << 30) is None
    assert root.commands == []


@pytest.mark.parametrize(
    ("left", "limit", "start"),
    [
        (12, 4, 8),
        (12, 7, 8),  # complete extents, and not more than the limit
        (12, 8, 4),
        (12, 12, 0),
        (12, 1 << 40, 0),
        (12, 1, 8),  # at least one
        (4, 1, 0),
        (2, 1, 0),  # the extent size is larger than before
    ],
)
def test_wipe_step_starts_at_an_extent(left, limit, start):
    assert deleted_volumes.next_start(left, limit, 4) == start
