# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which backend a new volume goes to, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import Exhausted, Invalid
from agent.records import Pool, VolumeType
from agent.service.placement import choose, room

SHARED = VolumeType("t", "shared", extra_specs={"multiattach": "<is> True"})


def pool(name: str, up: bool = True, **capabilities: Any) -> Pool:
    base = {
        "volume_backend_name": name,
        "total_capacity_gb": 100.0,
        "free_capacity_gb": 100.0,
        "provisioned_capacity_gb": 0.0,
        "reserved_percentage": 0,
        "max_over_subscription_ratio": 2.0,
        "thin_provisioning_support": False,
        "multiattach": True,
    }
    return Pool(f"host@{name}#{name}", name, {**base, **capabilities}, up)


def test_the_backend_with_the_most_room_is_chosen() -> None:
    pools = [pool("a", free_capacity_gb=10.0), pool("b", free_capacity_gb=20.0)]
    assert choose(pools, 5, None) == "b"


def test_a_thin_pool_is_promised_by_its_ratio() -> None:
    thin = pool("a", thin_provisioning_support=True, provisioned_capacity_gb=150.0)
    assert room(thin) == 50.0


def test_a_pool_that_is_physically_full_takes_nothing_whatever_its_ratio() -> None:
    full = pool("a", thin_provisioning_support=True, free_capacity_gb=0.0)
    assert room(full) == 0.0


def test_the_reserve_is_left_alone() -> None:
    assert room(pool("a", reserved_percentage=40)) == 60.0
    nearly = pool(
        "a",
        reserved_percentage=40,
        thin_provisioning_support=True,
        free_capacity_gb=39.0,
    )
    assert room(nearly) == 0.0


def test_too_large_is_said_with_the_room_there_is() -> None:
    with pytest.raises(Exhausted, match=r"size 500 GiB .*\(a 100 GiB\)"):
        choose([pool("a")], 500, None)


def test_a_type_that_no_backend_can_do_is_said_with_the_reason() -> None:
    with pytest.raises(Invalid, match="a: multiattach is False, not <is> True"):
        choose([pool("a", multiattach=False)], 1, SHARED)


def test_a_backend_that_is_down_is_not_chosen() -> None:
    with pytest.raises(Invalid, match="a: it is down or disabled"):
        choose([pool("a", up=False)], 1, None)


@pytest.mark.parametrize(
    ("key", "wanted", "chosen"),
    [
        ("volume_backend_name", "b", "b"),
        ("capabilities:volume_backend_name", "b", "b"),
        ("multiattach", "<is> True", "a"),
        ("elsewhere:key", "value", "a"),
    ],
)
def test_extra_specs_are_matched_with_capabilities(
    key: str, wanted: str, chosen: str
) -> None:
    pools = [pool("a", free_capacity_gb=50.0), pool("b", free_capacity_gb=40.0)]
    assert choose(pools, 1, VolumeType("t", "t", extra_specs={key: wanted})) == chosen
