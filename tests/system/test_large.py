# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thick volumes of terabytes, on a disk that accepts every write and stores none.

The test shows that no size is refused, that each step is short, and that work ends
when it makes no progress, not when it takes long.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import Stalled
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.values import GIB, Snapshot
from tests.stands.waiting import until
from tests.system.lio_node import run
from tests.system.lvm_kit import build_lvm, root

__all__ = ["root"]
pytestmark = pytest.mark.system

GROUP = "lunshare-large"
_SECTOR = 512
_SIZE = 2000 * GIB
_HEAD = 64 * MIB  # LVM's metadata, on a disk that stores what is written


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """dm-zero drops what is written, and answers at once: it does no I/O.

    scsi_debug with fake_rw=1 does neither write nor read: a buffer keeps its bytes, so
    the header of a new snapshot was sometimes not zero ("reload ioctl failed: No such
    device or address", from dm-snap-persistent.c: read_header).
    """
    store = tmp_path_factory.mktemp("large") / "head"
    with store.open("wb") as file:
        file.truncate(2 * _HEAD)
    loop = run("losetup", "--find", "--show", str(store)).strip()
    head, rest = _HEAD // _SECTOR, (_SIZE - _HEAD) // _SECTOR
    # Not at the start of the loop device: LVM would see its label twice.
    table = f"0 {head} linear {loop} {head}\n{head} {rest} zero"
    run("dmsetup", "create", GROUP, "--table", table)
    run("vgcreate", "-qq", "--setautoactivation", "n", GROUP, f"/dev/mapper/{GROUP}")
    yield GROUP
    run("vgremove", "-qq", "--force", "--yes", GROUP)
    run("dmsetup", "remove", "--retry", GROUP)
    run("losetup", "--detach", loop)


def test_large_thick_volume_is_created_and_its_clone_ends_without_progress(
    root: Root, group: str
) -> None:
    """From 844 GiB on: "timeout 86485.6 is not valid: give 0 to 86400 seconds".

    To copy all of it would take an hour, so the copy is stopped by a hanging disk.
    """
    volume, other = new_volume(900 * GIB), new_volume(900 * GIB)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
    thick, impatient = (
        build(root, progress_timeout) for progress_timeout in (120.0, 3.0)
    )
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
    until(lambda: _is_open(part), seconds=60)
    time.sleep(6)  # twice the progress timeout: it makes progress all the time
    assert not errors
    with _suspended(snapshot.name):
        cloning.join(30)
    [error] = errors
    assert isinstance(error, Stalled)
    assert error.done > 0
    until(lambda: not _is_open(part), seconds=60)  # it ends when no client waits for it
    thick.delete(other.id)
    thick.delete_snapshot(snapshot.id)
    thick.delete(volume.id)


def build(root: Root, progress_timeout: float) -> LvmVolumes:
    given = {"lvm_type": "default", "lvm_snapshot_reserve": 1}
    return build_lvm(
        root, volume_group=GROUP, progress_timeout=progress_timeout, **given
    )


def _is_open(name: str) -> bool:
    shown = run(
        "lvs", "--noheadings", "-o", "lv_device_open", f"--select=lv_name={name}"
    )
    return "open" in shown


@contextlib.contextmanager
def _suspended(name: str) -> Iterator[None]:
    """Its I/O hangs inside the block."""
    device = "-".join(each.replace("-", "--") for each in (GROUP, name))
    run("dmsetup", "suspend", "--noflush", "--nolockfs", device)
    try:
        yield
    finally:
        run("dmsetup", "resume", device)
