# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thin devices that the kernel's metadata has and LVM's does not, after a crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lunshare.drivers.backend import Backend
from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, defaults, new_volume
from lunshare.drivers.errors import CommandFailed, ForeignBytes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Snapshot
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, MAPPED_POOL, POOL, build_lvm, fill, group, root

__all__ = ["group", "root"]
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LAYER = f"{MAPPED_POOL}-tpool"


@contextlib.contextmanager
def orphan() -> Iterator[None]:
    """There is a device of which LVM's commit was lost, with the bytes of another."""
    number = 1 + max(map(int, _lvs("thin_id", f'pool_lv="{POOL}"').split()), default=0)
    run("dmsetup", "message", LAYER, "0", f"create_thin {number}")
    table = f"0 {8 * MIB // 512} thin /dev/mapper/{LAYER} {number}"
    run("dmsetup", "create", "kit-orphan", "--table", table)
    with open("/dev/mapper/kit-orphan", "wb", buffering=0) as device:
        device.write(b"another tenant's" * 4096)
        os.fsync(device.fileno())
    run("udevadm", "settle")
    run("dmsetup", "remove", "--retry", "kit-orphan")
    try:
        yield
    finally:
        _delete_unknown(number)


def _delete_unknown(number: int) -> None:
    if str(number) not in _lvs("thin_id", f'pool_lv="{POOL}"').split():
        run("dmsetup", "message", LAYER, "0", f"delete {number}")


def _lvs(field: str, select: str = f'lv_name="{POOL}"') -> str:
    return run("lvs", "--noheadings", "-o", field, "--select", select, GROUP)


def _set_transaction(number: int) -> None:
    now = run("dmsetup", "status", LAYER).split()[3]
    run("dmsetup", "message", LAYER, "0", f"set_transaction_id {now} {number}")


@pytest.fixture
def backend(root: Root) -> Iterator[Backend]:
    yield Backend(build_lvm(root), FakeTarget("none", defaults(FakeTarget), root))
    run("lvremove", "-y", "--select", f'pool_lv="{POOL}"', GROUP)


def test_new_volume_that_has_bytes_is_kept_from_hosts(backend: Backend) -> None:
    """As when LVM gave it the number of a device that it did not know."""
    volume = new_volume(8 * MIB)
    backend.volumes.create(volume)
    fill(volume.name, b"another tenant's" * 4096)
    with pytest.raises(ForeignBytes, match=f"{GROUP}/unmanaged-{volume.id}"):
        backend.create(volume)
    assert volume.id not in {disk.volume_id for disk in backend.volumes.disks()}
    assert Path(f"/dev/{GROUP}/unmanaged-{volume.id}").read_bytes()[:7] == b"another"
    disk = backend.create(volume)
    assert Path(disk.path).read_bytes() == bytes(8 * MIB)


def test_pool_that_the_kernel_has_changed_without_lvm_is_closed(
    backend: Backend,
) -> None:
    """LVM gave that device, with its bytes, to a volume, and nothing showed it."""
    backend.create(new_volume(8 * MIB))
    assert backend.volumes.capacity().closed == ""
    recorded = int(_lvs("transaction_id").split()[0])
    with orphan():
        _set_transaction(recorded + 1)
        try:
            assert "changes of its thin devices" in backend.volumes.capacity().closed
        finally:
            _set_transaction(recorded)
        assert backend.volumes.capacity().closed == ""


def test_orphan_is_kept_from_hosts_while_both_count_the_same(backend: Backend) -> None:
    backend.create(new_volume(8 * MIB))
    volume = new_volume(8 * MIB)
    with orphan():
        assert backend.volumes.capacity().closed == ""
        with pytest.raises(ForeignBytes, match=f"{GROUP}/unmanaged-{volume.id}"):
            backend.create(volume)
    unmanaged = Path(f"/dev/{GROUP}/unmanaged-{volume.id}")
    assert unmanaged.read_bytes()[:7] == b"another"
    assert Path(backend.create(volume).path).read_bytes() == bytes(8 * MIB)


@pytest.mark.parametrize("verb", ["create_snapshot", "clone", "revert"])
def test_copy_does_not_get_the_number_of_an_orphan(backend: Backend, verb: str) -> None:
    """LVM refuses it for a copy, not for an empty volume (2.03.16, create_snap)."""
    volumes, source, copy = backend.volumes, new_volume(8 * MIB), new_volume(8 * MIB)
    path = backend.create(source).path
    taken = Snapshot(copy.id, source.id, source.size)
    calls: dict[str, Callable[[], object]] = {
        "create_snapshot": lambda: volumes.create_snapshot(taken),
        "clone": lambda: volumes.clone(copy, source),
        "revert": lambda: volumes.revert(taken),
    }
    if verb == "revert":
        volumes.create_snapshot(taken)
    with orphan():
        with pytest.raises(CommandFailed, match="already contain thin device"):
            calls[verb]()
        volumes.check()
        assert Path(path).read_bytes() == bytes(8 * MIB)
    calls[verb]()
    assert Path(volumes.disk(source.id).path).read_bytes() == bytes(8 * MIB)
