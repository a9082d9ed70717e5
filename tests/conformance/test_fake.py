# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fake drivers pass the kit."""

from lunshare.drivers.conformance.fakes import FakeTargetFixtures, FakeVolumeFixtures
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.conformance.volume import VolumeContract


class TestFakeThick(FakeVolumeFixtures, VolumeContract):
    pass


class TestFakeThin(FakeVolumeFixtures, VolumeContract):
    options = {"fake_thin": True, "fake_capacity_gb": 1}


class TestFakeClones(FakeVolumeFixtures, VolumeContract):
    options = {"fake_thin": True, "fake_capacity_gb": 1, "fake_clones_at_once": True}


class TestFakeTarget(FakeTargetFixtures, TargetContract):
    pass


class TestFakeUnenforced(FakeTargetFixtures, TargetContract):
    options = {"fake_enforces": False}


class TestFakeWiped(FakeVolumeFixtures, VolumeContract):
    options = {"fake_thin": False, "fake_capacity_gb": 1, "fake_wipe": True}
