# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of revert: a volume gets the bytes of its snapshot again."""

from __future__ import annotations

import uuid

import pytest

from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.copies import CopyCase
from lunshare.drivers.conformance.point_in_time import PointInTimeContract
from lunshare.drivers.conformance.volume_bytes import HOLE, offsets
from lunshare.drivers.errors import DiskBusy, LostSnapshot, UnknownSnapshot
from lunshare.drivers.values import Snapshot, Volume


class RevertContract(PointInTimeContract):
    """One test for each behaviour."""

    @requires("supports_snapshots")
    def test_revert_restores_the_bytes_and_preserves_the_snapshot(
        self, case: CopyCase
    ) -> None:
        before, snapshot = case.disk, case.snapshot()
        half = self.size // 2
        for _ in range(2):
            case.overwrite(case.origin)
            self.write(case.driver, case.disk, HOLE, case.data)
            self.discard_if_supported(case.driver, case.disk, half, half)
            assert case.driver.revert(snapshot) == before
            assert not case.difference(case.origin, case.data)
            assert case.driver.snapshots() == (snapshot.id,)

    @requires("supports_snapshots", "extends_under_snapshots")
    def test_revert_restores_the_size(self, case: CopyCase) -> None:
        before, snapshot = case.disk, case.snapshot()
        case.overwrite(case.origin)
        larger = Volume(case.origin.id, 2 * self.size)
        grown = case.driver.extend(larger)
        for at in offsets(self.size, len(case.data)):
            self.write(case.driver, grown, self.size + at, case.data)
        assert case.driver.revert(snapshot) == before == case.disk
        assert case.driver.extend(larger) == grown
        assert not case.difference(case.origin, case.data)

    @requires("supports_snapshots")
    def test_revert_refuses_an_open_disk(self, case: CopyCase) -> None:
        snapshot, other = case.snapshot(), case.overwrite(case.origin)
        with self.held_open(case.driver, case.disk), pytest.raises(DiskBusy):
            case.driver.revert(snapshot)
        assert not case.difference(case.origin, other)

    @requires("supports_snapshots")
    def test_revert_to_an_unknown_snapshot_fails(self, case: CopyCase) -> None:
        with pytest.raises(UnknownSnapshot):
            case.driver.revert(Snapshot(str(uuid.uuid4()), case.origin.id, self.size))
        assert not case.difference(case.origin, case.data)

    @requires("supports_snapshots")
    def test_a_lost_snapshot_is_not_copied_or_reverted(self, case: CopyCase) -> None:
        snapshot = case.snapshot()
        if not self.can.loses_snapshots:
            return
        self.lose_snapshot(case.driver, snapshot)
        with pytest.raises(LostSnapshot) as raised:
            case.create_from(snapshot)
        assert raised.value.snapshot_id == snapshot.id
        with pytest.raises(LostSnapshot):
            case.driver.revert(snapshot)
        assert case.volume_ids() == [case.origin.id]
        found = self.read(case.driver, case.disk, 0, len(case.data))
        assert found == case.data
        case.driver.delete_snapshot(snapshot.id)
        assert case.driver.snapshots() == ()
