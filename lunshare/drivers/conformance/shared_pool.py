# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of two backends in one pool: neither changes the disks of the other."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.extend import ExtendContract
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import (
    InvalidValue,
    UnknownDisk,
    UnknownReference,
    UnknownSnapshot,
    Unsupported,
)
from lunshare.drivers.values import Snapshot, Volume

OtherBackend = Callable[[], VolumeDriver] | None


class SharedPoolContract(ExtendContract):
    """One test for each behaviour. A driver does not know the other's volumes."""

    @contextlib.contextmanager
    def volume_of_other_backend(
        self, other_backend: OtherBackend
    ) -> Iterator[tuple[Volume, Snapshot | None] | None]:
        """Create a volume of the other backend; it must be unchanged afterwards."""
        if other_backend is None:
            self.not_tried("two backends in one pool", "override `other_backend`")
            yield None
            return
        other, volume, snapshot = other_backend(), new_volume(self.size), None
        other.check()
        data = self.pattern(volume)
        disk = other.create(volume)
        self.write_pattern(other, disk, data)
        if other.abilities.supports_snapshots:
            snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
            other.create_snapshot(snapshot)
        yield volume, snapshot
        again = other_backend()
        assert again.disks() == (disk,)
        assert not self.difference(again, again.disk(volume.id), data)
        if snapshot:
            assert again.snapshots() == (snapshot.id,)
            again.delete_snapshot(snapshot.id)
        again.delete(volume.id)
        self.wipe_deleted(again)

    def test_a_volume_of_another_backend_is_not_listed(
        self, driver: VolumeDriver, other_backend: OtherBackend
    ) -> None:
        with self.volume_of_other_backend(other_backend) as found:
            if found is None:
                return
            assert driver.disks() == ()
            assert driver.snapshots() == ()
            if self.can.manages:
                listed = [each.reference for each in driver.manageable()]
                assert not [each for each in listed if found[0].id in each]

    def test_a_volume_of_another_backend_is_not_changed(
        self, driver: VolumeDriver, other_backend: OtherBackend
    ) -> None:
        with self.volume_of_other_backend(other_backend) as found:
            if found is None:
                return
            volume, _ = found
            driver.delete(volume.id)
            for refused in (
                lambda: driver.disk(volume.id),
                lambda: driver.extend(Volume(volume.id, 2 * self.size)),
            ):
                with pytest.raises(UnknownDisk):
                    refused()  # type: ignore[no-untyped-call]
            self.wipe_deleted(driver)

    def test_a_volume_of_another_backend_is_not_managed_or_unmanaged(
        self, driver: VolumeDriver, other_backend: OtherBackend, volume: Volume
    ) -> None:
        with self.volume_of_other_backend(other_backend) as found:
            if found is None:
                return
            with pytest.raises((UnknownReference, Unsupported)):
                driver.manage(volume, found[0].name)
            with contextlib.suppress(Unsupported):
                driver.unmanage(found[0].id)

    def test_a_snapshot_of_another_backend_is_not_used_or_deleted(
        self,
        driver: VolumeDriver,
        other_backend: OtherBackend,
        create_volume: Create,
        volume: Volume,
    ) -> None:
        if not self.can.supports_snapshots:
            return
        with self.volume_of_other_backend(other_backend) as found:
            if found is None or found[1] is None:
                return
            with pytest.raises(UnknownSnapshot):
                driver.create_from(volume, found[1])
            with pytest.raises((UnknownSnapshot, UnknownDisk)):
                driver.revert(found[1])
            mine = Snapshot(str(uuid.uuid4()), found[0].id, self.size)
            with pytest.raises(UnknownDisk):
                driver.create_snapshot(mine)
            driver.delete_snapshot(found[1].id)

    def test_a_deleted_disk_of_another_backend_is_not_wiped(
        self, driver: VolumeDriver, other_backend: OtherBackend
    ) -> None:
        if other_backend is None:
            return self.not_tried(
                "two backends in one pool", "override `other_backend`"
            )
        other, volume = other_backend(), new_volume(self.size)
        other.check()
        other.create(volume)
        other.delete(volume.id)
        left = other.wipes()
        assert driver.wipes() == ()
        for each in left:
            with contextlib.suppress(InvalidValue):
                driver.wipe(each.name, each.size)
        assert other.wipes() == left
        return self.wipe_deleted(other)
