# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the LVM driver makes of LVM's answers. The texts are those of lvm2 2.03.16."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.conformance.fixtures import defaults
from drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DiskBusy,
    DriverError,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from drivers.lvm import LvmVolumes, report
from drivers.values import Capacity, Disk, Volume

UUID = "11111111-2222-4333-8444-555555555555"
# No such group is on the machine of a test, so no disk is ever found active.
GROUP = "lunshare-unit-test"

LVS = """
  {
      "report": [
          {
              "lv": [
                  {"lv_name":"pool", "lv_size":"8589934592", "pool_lv":""},
                  {"lv_name":"volume-UUID", "lv_size":"8388608", "pool_lv":"pool"},
                  {"lv_name":"volume-UUID.new", "lv_size":"8388608", "pool_lv":""},
                  {"lv_name":"volume-mine", "lv_size":"4194304", "pool_lv":"pool"}
              ]
          }
      ]
  }
""".replace("UUID", UUID)
POOL = """
  {
      "report": [
          {
              "lv": [
                  {"lv_size":"8589934592", "segtype":"%s", "zero":"%s",
                   "data_percent":"%s", "metadata_percent":"%s"}
              ]
          }
      ]
  }
"""
HALF_FULL = POOL % ("thin-pool", "zero", "50.00", "10.79")
GONE = f'  Failed to find logical volume "{GROUP}/volume-{UUID}"\n'


class Scripted:
    """A door to root that gives answers by the name of the program."""

    def __init__(self, **answers: str | Exception) -> None:
        self._answers = answers
        self.commands: list[tuple[str, ...]] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.commands.append(argv)
        answer = self._answers[argv[0]]
        if isinstance(answer, str):
            return answer
        raise answer

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        raise AssertionError(verb)


def failed(stderr: str) -> CommandFailed:
    return CommandFailed(("lvm",), 5, stderr)


def driver(root: Scripted, **given: Any) -> LvmVolumes:
    given = {"volume_group": GROUP, "lvm_pool": "pool", "command_timeout": 0.01} | given
    return LvmVolumes("unit", defaults(LvmVolumes, **given), root)


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
    (pool,) = report.pools(POOL % ("thin-pool", "", "", ""))
    assert pool == report.Pool(8589934592, 0.0, 0.0, zeroes=False)


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
    class Root(Scripted):
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            super().run(*argv)
            return LVS if argv[-1] == GROUP else HALF_FULL

    found = driver(Root(lvs="")).capacity()
    assert found == Capacity(1 << 33, 1 << 32, 8388608 + 4194304, thin=True)


def test_capacity_of_a_group_is_one_command():
    text = '{"report":[{"vg":[{"vg_size":"100", "vg_free":"30"}]}]}'
    root = Scripted(vgs=text)
    found = driver(root, lvm_type="default").capacity()
    assert found == Capacity(100, 30, 70, thin=False)
    assert len(root.commands) == 1


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
        f"  Logical volume {GROUP}/volume-{UUID} in use.",
        f"  Logical volume {GROUP}/volume-{UUID} contains a filesystem in use.",
        f"  Logical volume {GROUP}/volume-{UUID} is used by another device.",
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
    [("98.00", "1.00", "data"), ("1.00", "95.00", "metadata")],
)
def test_a_pool_that_is_nearly_full_takes_no_volume(data, metadata, word):
    root = Scripted(lvs=POOL % ("thin-pool", "zero", data, metadata))
    with pytest.raises(NoSpace, match=f"its {word} is"):
        driver(root).create(Volume(UUID, 8))
    assert [argv[0] for argv in root.commands] == ["lvs"]


def test_any_other_failure_is_passed_on():
    said = failed("  WARNING: Device for PV not found or rejected by a filter.")
    with pytest.raises(CommandFailed):
        driver(Scripted(lvremove=said)).delete(UUID)


def test_a_pool_that_is_no_pool_is_named():
    group = '{"report":[{"vg":[{"vg_size":"9", "vg_free":"9"}]}]}'
    root = Scripted(vgs=group, lvs=POOL % ("linear", "", "", ""))
    with pytest.raises(Misconfigured, match="lvcreate --type thin-pool"):
        driver(root).check()


def test_a_node_that_does_not_appear_ends_at_the_deadline():
    with pytest.raises(DeadlineExceeded):
        driver(Scripted(lvchange="")).disk(UUID)
