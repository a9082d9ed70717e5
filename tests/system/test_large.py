# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thick volumes of terabytes, on a disk that takes every write and keeps none.

So what is seen is that nothing is refused for its size, that a step does not take long,
and that the work is given up where it stands still and not where it takes long.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import Stalled
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.values import GIB, Snapshot
from tests.system.lio_node import run
from tests.system.lvm_kit import build_lvm, root
from tests.system.waiting import wait_until

__all__ = ["root"]
pytestmark = pytest.mark.system

GROUP = "lunshare-large"
_SECTOR = 512
_HEAD = 64 * MIB  # where LVM keeps its metadata: on a disk that keeps what is written


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """scsi_debug with fake_rw=1 does nothing, WRITE SAME included, and at once."""
    given = ("virtual_gb=2000", "dev_size_mb=8", "fake_rw=1", "lbpws=1", "delay=0")
    run("modprobe", "scsi_debug", *given)
    run("udevadm", "settle")
    [disk] = [path for path in Path("/sys/block").iterdir() if _is_fake(path)]
    store = tmp_path_factory.mktemp("large") / "head"
    with store.open("wb") as file:
        file.truncate(2 * _HEAD)
    loop, head = (
        run("losetup", "--find", "--show", str(store)).strip(),
        _HEAD // _SECTOR,
    )
    rest = int((disk / "size").read_text()) - head
    # Behind the loop device's own beginning: LVM would see its label twice.
    table = (
        f"0 {head} linear {loop} {head}\n{head} {rest} linear /dev/{disk.name} {head}"
    )
    run("dmsetup", "create", GROUP, "--table", table)
    run("vgcreate", "-qq", "--setautoactivation", "n", GROUP, f"/dev/mapper/{GROUP}")
    yield GROUP
    run("vgremove", "-qq", "--force", "--yes", GROUP)
    run("dmsetup", "remove", "--retry", GROUP)
    run("losetup", "--detach", loop)
    run("modprobe", "-r", "scsi_debug")


def _is_fake(disk: Path) -> bool:
    model = disk / "device" / "model"
    return model.exists() and model.read_text().strip() == "scsi_debug"


def test_large_thick_volume_is_created_and_its_clone_ends_without_progress(
    root: Root, group: str
) -> None:
    """From 844 GiB on: "timeout 86485.6 is not valid: give 0 to 86400 seconds".

    To copy all of it would be an hour's reading, so the copy is made to stand still.
    """
    volume, other = new_volume(900 * GIB), new_volume(900 * GIB)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
    thick, impatient = (build(root, patience) for patience in (120.0, 3.0))
    assert thick.create(volume).size == volume.size
    thick.create_snapshot(snapshot)
    errors: list[Exception] = []

    def clone() -> None:
        try:
            impatient.create_from(other, snapshot)
        except Exception as error:
            errors.append(error)

    cloning = threading.Thread(target=clone)
    cloning.start()
    part = f"{other.name}.new"
    wait_until(lambda: _is_open(part), 60)
    time.sleep(6)  # twice its patience: it comes further all the time
    assert not errors
    with _suspended(snapshot.name):
        cloning.join(30)
    [error] = errors
    assert isinstance(error, Stalled)
    assert error.done > 0
    wait_until(lambda: not _is_open(part), 60)  # it ends when nobody waits for it
    thick.delete(other.id)
    thick.delete_snapshot(snapshot.id)
    thick.delete(volume.id)


def build(root: Root, patience: float) -> LvmVolumes:
    given = {"lvm_type": "default", "lvm_snapshot_reserve": 1}
    return build_lvm(root, volume_group=GROUP, progress_timeout=patience, **given)


def _is_open(name: str) -> bool:
    shown = run(
        "lvs", "--noheadings", "-o", "lv_device_open", f"--select=lv_name={name}"
    )
    return "open" in shown


@contextlib.contextmanager
def _suspended(name: str) -> Iterator[None]:
    """A time in which its I/O hangs."""
    device = "-".join(each.replace("-", "--") for each in (GROUP, name))
    run("dmsetup", "suspend", "--noflush", "--nolockfs", device)
    try:
        yield
    finally:
        run("dmsetup", "resume", device)
