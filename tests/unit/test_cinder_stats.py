# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the driver for Cinder reports of a backend to Cinder's scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lunshare.cinder.scheduler_stats import SchedulerStats
from lunshare.drivers.backend import Backend
from lunshare.drivers.conformance.fixtures import defaults, new_volume
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import CommandFailed, StorageLost
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB, Capacity

OF_OPERATOR = {
    "volume_backend_name": "one",
    "pool_name": "one",
    "max_over_subscription_ratio": "20.0",
    "reserved_percentage": 5,
}


@pytest.fixture
def volumes(request: pytest.FixtureRequest) -> FakeVolumes:
    return FakeVolumes(request.node.name, defaults(FakeVolumes), NoRoot())


@pytest.fixture
def stats(volumes: FakeVolumes) -> SchedulerStats:
    target = FakeTarget(volumes.name, defaults(FakeTarget), NoRoot())
    return SchedulerStats(Backend(volumes, target), OF_OPERATOR)


def pool(stats: SchedulerStats) -> dict[str, Any]:
    """The stats of the only pool."""
    found = stats.read()
    assert found["vendor_name"] == "lunshare"
    assert found["storage_protocol"] == "iSCSI"
    (inside,) = found["pools"]
    return dict(inside)


def has_no_space(found: dict[str, Any]) -> bool:
    """Whether the filters of Cinder refuse the pool for every size."""
    return bool(
        found["free_capacity_gb"] == 0
        and found["provisioned_capacity_gb"] >= found["total_capacity_gb"]
        and found["max_over_subscription_ratio"] == "1.0"
        and found["reserved_percentage"] == 0
    )


def test_pool_has_what_the_drivers_can_do_and_what_the_operator_set(
    stats: SchedulerStats, volumes: FakeVolumes
) -> None:
    volumes.create(new_volume(GIB))
    found = pool(stats)
    assert found["multiattach"] is True
    assert found["enforces_read_only"] is True
    assert found["total_volumes"] == 1
    assert found["provisioned_capacity_gb"] == 1
    assert found["backend_state"] == "up"
    assert {key: found[key] for key in OF_OPERATOR} == OF_OPERATOR
    assert not has_no_space(found)


@pytest.mark.parametrize("point", ["check", "capacity", "disks"])
def test_backend_that_fails_has_no_space_and_says_why(
    stats: SchedulerStats, volumes: FakeVolumes, point: str
) -> None:
    with volumes.failures.fail(point, CommandFailed(("vgs",), 5, "it is gone")):
        found = pool(stats)
    assert has_no_space(found)
    assert found["backend_state"] == "down"
    assert "it is gone" in found["state_reason"]
    assert stats.problem == found["state_reason"]
    assert not has_no_space(pool(stats))
    assert stats.problem is None


def test_closed_pool_has_no_space_and_is_up(
    stats: SchedulerStats, volumes: FakeVolumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearly_full() -> Capacity:
        return replace(measure(), closed="its data is 99 % full")

    measure = volumes.capacity
    monkeypatch.setattr(volumes, "capacity", nearly_full)
    found = pool(stats)
    assert has_no_space(found)
    assert found["backend_state"] == "up"
    assert found["state_reason"] == "its data is 99 % full"


def test_pool_with_a_lost_part_has_no_space_and_is_up(
    stats: SchedulerStats, volumes: FakeVolumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its volumes cannot be counted, and hosts use those that are left."""
    lost = StorageLost("share one cannot be mounted", "correct that")

    def without_a_share() -> Capacity:
        return replace(measure(), closed=str(lost))

    measure = volumes.capacity
    monkeypatch.setattr(volumes, "capacity", without_a_share)
    with volumes.failures.fail("disks", lost):
        found = pool(stats)
    assert has_no_space(found)
    assert (found["backend_state"], stats.problem) == ("up", None)
    assert found["state_reason"] == str(lost)
    assert found["total_volumes"] == 0
