# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the LVM driver handles LVM's output. The texts are those of lvm2 2.03.16."""

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
from lunshare.drivers.lvm import claim, disk_events, lvm_reports, names
from lunshare.drivers.values import Capacity, Disk, Volume
from tests.unit.lvm_answers import (
    GONE,
    GROUP,
    LVS,
    OTHER,
    POOL,
    SNAPSHOT,
    THIN_POOL,
    UUID,
    VG,
    Answering,
    Scripted,
    commit,
    driver,
    failed,
    full,
    pool_status,
    row,
    rows,
)

# reports


def test_report_of_volumes_is_parsed():
    names = [found.name for found in lvm_reports.logical_volumes(LVS)]
    assert names == ["pool", f"volume-{UUID}", f"volume-{UUID}.new", "volume-mine"]
    assert lvm_reports.logical_volumes(LVS)[1] == lvm_reports.LogicalVolume(
        f"volume-{UUID}", 8388608, "pool"
    )


def test_report_of_segments_is_parsed():
    text = '{"report":[{"seg":[{"seg_size":"8388608",'
    text += '"seg_pe_ranges":"/dev/loop0:2052-2053"}]}]}'
    assert lvm_reports.segments(text) == (
        lvm_reports.Segment(8388608, "/dev/loop0:2052-2053"),
    )


def test_report_of_a_pool_says_whether_it_zeroes_chunks():
    (pool,) = lvm_reports.pools(POOL % ("thin-pool", ""))
    assert pool == lvm_reports.ThinPool(8589934592, zeroes=False, transaction=9)
    (pool,) = lvm_reports.pools(THIN_POOL)
    assert pool.zeroes


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"report": [{}]}', '{"report": [{"lv": [{}]}]}']
)
def test_report_of_unknown_format_is_refused(text):
    with pytest.raises(DriverError, match="does not have the known format"):
        lvm_reports.logical_volumes(text)


# disks and capacity


def test_disks_lists_only_volumes_of_the_pool():
    root = Scripted(lvs=LVS)
    path = f"/dev/{GROUP}/volume-{UUID}"
    assert driver(root).disks() == (Disk(UUID, path, 8388608),)
    assert driver(root, lvm_pool="other").disks() == ()
    assert driver(root, lvm_type="default").disks() == ()


def test_capacity_of_a_pool_counts_foreign_volumes_too():
    found = driver(Answering(THIN_POOL, lvs=LVS)).capacity()
    assert found == Capacity(
        1 << 33,
        1 << 32,
        8388608 + 4194304,
        True,
        "",
        data_percent=50.0,
        metadata_percent=10.79,
    )


def test_volumes_are_listed_again_only_after_a_change_of_the_group():
    root = ActivePool()
    backend = driver(root)
    listing = ["vgs", "lvs", "lvs", "lvm.pool"]
    assert (
        _commands(root, backend.capacity) == listing
    )  # the first call does not know the disks of the group
    assert _commands(root, backend.capacity) == ["lvm.commit", *listing]
    assert _commands(root, backend.capacity) == ["lvm.commit", "lvm.pool"]
    assert _commands(root, backend.check) == ["lvm.commit", "lvchange"]
    root.commit = commit(12288, 8)
    assert _commands(root, backend.capacity) == ["lvm.commit", *listing]
    assert _commands(root, backend.capacity) == ["lvm.commit", "lvm.pool"]


def test_disks_and_snapshots_use_the_cached_listing():
    root = ActivePool()
    backend = driver(root)
    assert _commands(root, backend.disks) == ["vgs", "lvs"]
    assert _commands(root, backend.snapshots) == ["lvm.commit", "vgs", "lvs"]
    # The group's disk and its commit are known now: no command lists the volumes.
    for _ in range(3):
        assert _commands(root, backend.disks) == ["lvm.commit"]
        assert _commands(root, backend.snapshots) == ["lvm.commit"]
    root.add(f"_snapshot-{OTHER}", f"volume-{OTHER}")
    assert _commands(root, backend.disks) == ["lvm.commit", "vgs", "lvs"]
    assert [disk.volume_id for disk in backend.disks()] == [UUID, OTHER]
    assert backend.snapshots() == (OTHER,)


@pytest.mark.parametrize(
    "answer", [None, DriverError("no such device")], ids=["nothing", "no disk"]
)
def test_listing_is_not_cached_if_the_commit_is_unknown(answer):
    root = Scripted(vgs=VG % (30, ""), lvs=LVS)
    root.commit = answer
    backend = driver(root, lvm_type="default")
    for _ in range(3):
        root.commands.clear()
        assert backend.capacity() == Capacity(100, 30, 70, thin=False)
        assert [argv[0] for argv in root.commands][-2:] == ["vgs", "lvs"]


def test_hanging_disk_fails_the_call_after_one_command():
    root = Scripted(vgs=VG % (30, ""), lvs=LVS)
    backend = driver(root, lvm_type="default")
    backend.capacity()
    root.commit = DeadlineExceeded("reading the header of /dev/loop9", 60)
    root.commands.clear()
    with pytest.raises(DeadlineExceeded):
        backend.capacity()
    assert root.commands == [("lvm.commit",)]


def test_listing_is_not_cached_without_a_disk_with_metadata():
    group = (VG % (30, "")).replace('count":"1"', 'count":"0"')
    root = Scripted(vgs=group, lvs=LVS)
    backend = driver(root, lvm_type="default")
    assert (
        _commands(root, backend.capacity)
        == _commands(root, backend.capacity)
        == ["vgs", "lvs"]
    )


def test_usage_of_an_active_pool_comes_from_the_kernel():
    found = driver(ActivePool()).capacity()
    assert (found.data_percent, found.metadata_percent) == (43.75, 1.03)
    assert found.free == (1 << 33) * 5625 // 10000


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ("3 1/4 2/4 - rw discard_passdown queue_if_no_space - 1024", ""),
        ("3 1/4 4/4 - out_of_data_space no_discard_pass", "out_of_data"),
        ("3 1/4 2/4 - ro discard_passdown", "metadata_read_only"),
        ("Fail", "failed"),
        ("Error", "failed"),
    ],
)
def test_pool_health_uses_the_words_of_lvm(status, health):
    found = lvm_reports.pool_usage(status)
    assert found.health == health
    assert found.metadata_percent in (25.0, 100)


@pytest.mark.parametrize("status", ["", "3 half full", "3 1/4"])
def test_status_of_another_form_is_an_error(status):
    with pytest.raises(DriverError, match=f"not have the known format: {status}"):
        lvm_reports.pool_usage(status)


class ActivePool(Answering):
    """A group with an active pool that has volumes."""

    def __init__(self) -> None:
        status = "9 21/2048 7/16 - rw discard_passdown"
        group = VG % (50, claim.node_tag())
        super().__init__(THIN_POOL, vgs=group, lvs=LVS, pool=status, lvchange="")

    def add(self, *names: str) -> None:
        """Add volumes to the pool, as one commit of LVM's metadata."""
        added = [row(name, pool_lv="pool") for name in names]
        self._answers["lvs"] = rows(row(f"volume-{UUID}", pool_lv="pool"), *added)
        self.commit = commit(12288, 8)


def _commands(root: Scripted, call: Callable[[], object]) -> list[str]:
    """Return the programs that the call ran."""
    root.commands.clear()
    call()
    return [argv[0] for argv in root.commands]


# error messages of LVM


def test_error_for_a_missing_group_names_group_and_remedy():
    stderr = (
        f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    )
    with pytest.raises(Misconfigured, match=f"vgcreate {GROUP}"):
        driver(Scripted(vgs=failed(stderr))).check()


def test_missing_volume_is_an_unknown_disk():
    root = Scripted(lvchange=failed(GONE))
    with pytest.raises(UnknownDisk):
        driver(root).disk(UUID)


def test_delete_of_unknown_disk_succeeds():
    driver(Scripted(lvremove=failed(GONE))).delete(UUID)


@pytest.mark.parametrize(
    "stderr",
    [
        f"  Logical volume lunshare/volume-{UUID} in use.",
        f"  Logical volume lunshare/volume-{UUID} contains a filesystem in use.",
        f"  Logical volume lunshare/volume-{UUID} is used by another device.",
    ],
)
def test_delete_of_an_open_disk_is_refused(stderr):
    with pytest.raises(DiskBusy) as raised:
        driver(Scripted(lvremove=failed(stderr))).delete(UUID)
    assert raised.value.volume_id == UUID


def test_create_in_a_group_without_extents_is_no_space():
    stderr = f'  Volume group "{GROUP}" has insufficient free space (3 extents): 5.'
    root = Scripted(lvs='{"report":[{"lv":[]}]}', lvcreate=full(stderr))
    with pytest.raises(NoSpace) as raised:
        driver(root, lvm_type="default").create(Volume(UUID, 8))
    assert raised.value.pool == GROUP


@pytest.mark.parametrize(
    ("data", "metadata", "word"), [(95.0, 1.0, "data"), (1.0, 90.0, "metadata")]
)
def test_nearly_full_pool_refuses_a_volume(data, metadata, word):
    root = Scripted(pool_status(data, metadata), lvs=rows())
    with pytest.raises(NoSpace, match=f"its {word} is"):
        driver(root).create(Volume(UUID, 8))
    assert [argv[0] for argv in root.commands] == ["lvm.pool", "lvs"]


class InactivePool(Answering):
    """A pool that is active, and 99 % full, once LVM has activated it."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] == "lvchange":
            self.pool = pool_status(99.0, 1.0)
        return super().run(*argv)


def test_inactive_pool_is_activated_to_know_how_full_it_is():
    root = InactivePool(THIN_POOL, None, lvs=rows(), lvchange="")
    found = driver(root).capacity()
    assert (found.data_percent, found.free) == (99.0, (1 << 33) // 100)
    assert "its data is 99% full" in found.closed
    root = InactivePool(THIN_POOL, None, lvs=rows(), lvchange="")
    with pytest.raises(NoSpace, match="its data is 99% full"):
        driver(root).create(Volume(UUID, 8))


def test_pool_that_stays_inactive_has_no_capacity():
    root = Answering(THIN_POOL, None, lvs=rows(), lvchange="")
    with pytest.raises(Misconfigured, match=f"lvchange -ay {GROUP}/pool"):
        driver(root).capacity()


def test_unknown_failure_is_raised_unchanged():
    stderr = failed("  WARNING: Device for PV not found or rejected by a filter.")
    with pytest.raises(CommandFailed):
        driver(Scripted(lvremove=stderr)).delete(UUID)


def test_error_names_a_pool_that_is_not_a_thin_pool():
    group, pool = VG % (9, claim.node_tag()), POOL % ("linear", "")
    root = Answering(pool, vgs=group, lvs=LVS)
    with pytest.raises(Misconfigured, match="lvcreate --type thin-pool"):
        driver(root).check()


def test_missing_device_node_is_deadline_exceeded():
    with pytest.raises(DeadlineExceeded):
        driver(Scripted(lvchange="")).disk(UUID)


# a pool that is nearly full


@pytest.mark.parametrize(
    ("usage", "options", "word"),
    [
        ((95.0, 1.0), {}, "its data is 95% full"),
        ((94.99, 1.0), {}, ""),
        ((94.99, 90.0), {}, "its metadata is 90% full"),
        ((60.0, 1.0), {"lvm_pool_data_limit": 60.0}, "its data is 60%"),
        ((1.0, 50.0), {"lvm_pool_metadata_limit": 50.0}, "its metadata"),
        ((1.0, 1.0, "out_of_data_space"), {}, "out_of_data"),
    ],
)
def test_closed_pool_reports_the_reason(usage, options, word):
    root = Answering(THIN_POOL, pool_status(*usage), lvs=LVS)
    closed = driver(root, **options).capacity().closed
    assert word in closed
    assert bool(word) is bool(closed)


@pytest.mark.parametrize("call", ["create_snapshot", "create_from"])
def test_nearly_full_pool_refuses_snapshots_and_copies(call):
    listed = rows(row(f"volume-{UUID}", pool_lv="pool"))
    root = Answering(THIN_POOL, pool_status(99.0, 1.0), lvs=listed)
    given = [SNAPSHOT] if call == "create_snapshot" else [Volume(OTHER, 8), SNAPSHOT]
    with pytest.raises(NoSpace, match="its data is 99% full"):
        getattr(driver(root), call)(*given)
    assert {argv[0] for argv in root.commands} <= {"lvs", "lvm.pool"}


def test_group_without_free_extents_is_closed():
    root = Scripted(vgs=VG % (0, ""), lvs=LVS)
    found = driver(root, lvm_type="default").capacity()
    assert "all its extents are allocated" in found.closed


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
def test_names_of_lunshare_are_recognised(name):
    assert names.created_by_lunshare(name)
    assert names.is_valid(name)
    for other in (name[:-1] + "-", name + "x", "x" + name):
        assert not names.created_by_lunshare(other)


def test_name_of_a_deleted_volume_has_its_size():
    name = names.deleted_name(8 << 20)
    assert names.deleted_size(name) == 8 << 20
    assert names.deleted_name(8 << 20) != name
    assert names.deleted_size(f"volume-{UUID}") is None


# a group that vanished


@pytest.mark.parametrize("call", ["disks", "capacity", "snapshots", "manageable"])
def test_error_names_a_group_that_vanished(call):
    stderr = (
        f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    )
    root = Scripted(vgs=failed(stderr), lvs=failed(stderr))
    with pytest.raises(Misconfigured, match=f"volume_group {GROUP}: there is no such"):
        getattr(driver(root), call)()


def test_disk_of_a_vanished_group_is_not_an_unknown_disk():
    stderr = (
        f'  Volume group "{GROUP}" not found\n  Cannot process volume group {GROUP}'
    )
    with pytest.raises(Misconfigured):
        driver(Scripted(lvchange=failed(stderr))).disk(UUID)


# a disk of the group that is lost


def test_lost_disk_closes_the_pool_and_names_the_volumes_that_need_it():
    text = rows(
        row(f"volume-{UUID}", lv_health_status="partial"),
        row(f"volume-{OTHER}", lv_health_status=""),
    )
    missing = (VG % (50, claim.node_tag())).replace('_pv_count":"0"', '_pv_count":"1"')
    root = Scripted(vgs=missing, lvs=text, lvchange="")
    backend = driver(root, lvm_type="default")
    backend.check()
    assert "1 of its disks are lost" in backend.capacity().closed
    assert backend.lost(UUID) == backend.capacity().closed
    assert backend.lost(OTHER) == ""
    root._answers["vgs"] = VG % (50, claim.node_tag())
    backend._listing.disks_changed()
    backend.check()
    assert backend.capacity().closed == backend.lost(UUID) == ""


def test_listing_that_was_read_while_a_disk_changed_is_read_again():
    class Changing(Scripted):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            backend._listing.disks_changed()
            return super().run(*argv, timeout=timeout)

    root = Changing(lvs=LVS)
    backend = driver(root, lvm_type="default")
    for _ in range(3):
        assert _commands(root, backend.disks) == ["vgs", "lvs"]


def test_disks_of_lvm_that_are_lost_or_back_are_noticed_once():
    disks: list[str] = []
    differ = disk_events.BlockDevices(lambda: disks).differ
    member, size = {"ID_FS_TYPE": "LVM2_member", "ID_FS_UUID": "a"}, b"2048"
    back = FakeDevice(size, member)
    assert differ(back)
    assert not differ(back)  # LVM has written to it
    assert differ(FakeDevice(b"0", {}))
    assert not differ(FakeDevice(size, {}))
    disks.append("/dev/disk")  # udev has not seen its header
    assert differ(FakeDevice(b"0", {}))
    assert differ(back)
    assert differ(FakeDevice(size, member, "remove"))


def test_logical_volume_is_no_disk_of_a_group():
    """A host may have written anything there, also the header of a physical volume."""
    member = {"ID_FS_TYPE": "LVM2_member", "ID_FS_UUID": "a"}
    written = {**member, "DM_VG_NAME": GROUP}
    assert not disk_events.BlockDevices(tuple).differ(FakeDevice(b"9", written))


class FakeDevice:
    """The device of an event: a disk of this size with these properties."""

    sys_path, device_node = "/sys/devices/of-this-test", "/dev/disk"
    device_links = ("/dev/by-id/disk",)

    def __init__(
        self, size: bytes, properties: dict[str, str], action: str = "change"
    ) -> None:
        self.attributes, self.properties = {"size": size}, properties
        self.action = action
