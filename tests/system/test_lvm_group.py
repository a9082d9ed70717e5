# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What others do with a volume group: claim it, rename it, open its volumes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import DiskBusy, Misconfigured, UnknownDisk
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, POOL, build_lvm, group, root, thin_volume

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
        assert "it is open" in found.reason_not_safe
        with pytest.raises(DiskBusy):
            thin.manage(volume, "kit-open")
        os.close(held)
    assert thin.disks() == ()


def test_pools_are_not_manageable(root: Root) -> None:
    assert build_lvm(root, lvm_type="default").manageable() == ()
    assert POOL in run("lvs", "--noheadings", "-o", "lv_name", GROUP)
