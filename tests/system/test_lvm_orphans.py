# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thin devices that the kernel's metadata has and LVM's does not, after a crash."""

from __future__ import annotations

import os

import pytest

from lunshare.drivers.backend import Backend
from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, defaults, new_volume
from lunshare.drivers.errors import ForeignBytes
from lunshare.drivers.targets.fake import FakeTarget
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, MAPPED_POOL, POOL, build_lvm, group, root

__all__ = ["group", "root"]
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LAYER = f"{MAPPED_POOL}-tpool"


def leave_orphan() -> None:
    """Leave a device of which the commit of LVM was lost, with the bytes of another."""
    number = 1 + max(map(int, _lvs("thin_id").split()), default=0)
    run("dmsetup", "message", LAYER, "0", f"create_thin {number}")
    table = f"0 {8 * MIB // 512} thin /dev/mapper/{LAYER} {number}"
    run("dmsetup", "create", "kit-orphan", "--table", table)
    with open("/dev/mapper/kit-orphan", "wb", buffering=0) as device:
        device.write(b"another tenant's" * 4096)
        os.fsync(device.fileno())
    run("udevadm", "settle")
    run("dmsetup", "remove", "--retry", "kit-orphan")


def _lvs(field: str) -> str:
    select = ("--select", f'lv_name="{POOL}" || pool_lv="{POOL}"')
    return run("lvs", "--noheadings", "-o", field, *select, GROUP)


def _set_transaction(number: int) -> None:
    now = run("dmsetup", "status", LAYER).split()[3]
    run("dmsetup", "message", LAYER, "0", f"set_transaction_id {now} {number}")


def test_device_that_lvm_does_not_know_is_not_given_to_a_new_volume(root: Root) -> None:
    """It was given to the next volume, with its bytes, and nothing showed it."""
    volumes = build_lvm(root)
    backend = Backend(volumes, FakeTarget("none", defaults(FakeTarget), root))
    first, second = new_volume(8 * MIB), new_volume(8 * MIB)
    backend.create(first)
    assert volumes.capacity().closed == ""
    leave_orphan()
    # LVM sends no message whose number the kernel has passed.
    recorded = int(
        run("lvs", "--noheadings", "-o", "transaction_id", f"{GROUP}/{POOL}")
    )
    _set_transaction(recorded + 1)
    try:
        assert "changes of its thin devices" in volumes.capacity().closed
        run("vgchange", "-an", GROUP)
        with pytest.raises(ForeignBytes, match=f"{GROUP}/unmanaged-{second.id}"):
            backend.create(second)
        assert second.id not in {disk.volume_id for disk in volumes.disks()}
        assert backend.create(second).size == second.size
    finally:
        run("lvremove", "-y", "--select", f'pool_lv="{POOL}"', GROUP)
