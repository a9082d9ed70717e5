# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which backend is chosen for a new volume, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lunshare.agent.model.errors import AgentError, Exhausted, Invalid
from lunshare.agent.model.records import Pool, VolumeType
from lunshare.agent.service.scheduling import extra_specs, weighers
from lunshare.agent.service.scheduling.explanation import Choice, PlacementRequest
from lunshare.agent.service.scheduling.filters import FILTERS
from lunshare.agent.service.scheduling.free_space import provisionable
from lunshare.agent.service.scheduling.scheduler import choose, refusal

SHARED = VolumeType("t", "shared", extra_specs={"multiattach": "<is> True"})
WEIGHTS = {weighers.CAPACITY: 1.0, weighers.ALLOCATED: 0.0}


def pool(name: str, **capabilities: Any) -> Pool:
    base = {
        "volume_backend_name": name,
        "total_capacity_gb": 100.0,
        "free_capacity_gb": 100.0,
        "provisioned_capacity_gb": 0.0,
        "allocated_capacity_gb": 0,
        "reserved_percentage": 0,
        "max_over_subscription_ratio": 2.0,
        "thin_provisioning_support": False,
        "multiattach": True,
    }
    return Pool(f"host@{name}#{name}", name, {**base, **capabilities})


def request(
    size: int, volume_type: VolumeType | None = None, **extra_specs: str
) -> PlacementRequest:
    if extra_specs:
        volume_type = VolumeType("t", "t", extra_specs=extra_specs)
    return PlacementRequest(size, volume_type)


def chosen(pools: list[Pool], asked: PlacementRequest, **weights: float) -> str:
    found = choose(pools, asked, {**WEIGHTS, **weights}).chosen
    assert found
    return found.backend


def refused(pools: list[Pool], asked: PlacementRequest) -> AgentError:
    choice = choose(pools, asked, WEIGHTS)
    assert choice.chosen is None
    return refusal(choice)


def filter_results(choice: Choice, backend: str) -> dict[str, tuple[bool, str]]:
    (of_it,) = [c for c in choice.candidates if c.pool.backend == backend]
    return {each.filter: (each.passed, each.reason) for each in of_it.filter_results}


def test_the_backend_with_the_most_free_space_is_chosen() -> None:
    pools = [pool("a", free_capacity_gb=10.0), pool("b", free_capacity_gb=20.0)]
    assert chosen(pools, request(5)) == "b"


def test_multipliers_decide_which_weigher_counts() -> None:
    small = pool("small", total_capacity_gb=50.0, free_capacity_gb=40.0)
    large = pool("large", allocated_capacity_gb=30)
    assert chosen([small, large], request(5)) == "large"
    assert chosen([small, large], request(5), capacity=-1.0) == "small"
    assert chosen([small, large], request(5), allocated_capacity=-1.5) == "small"


def test_a_thin_pool_provisions_its_ratio() -> None:
    thin = pool("a", thin_provisioning_support=True, provisioned_capacity_gb=150.0)
    assert provisionable(thin) == 50.0
    assert chosen([thin], request(50)) == "a"
    assert isinstance(refused([thin], request(51)), Exhausted)


def test_a_thick_pool_provisions_what_is_free_and_not_provisioned() -> None:
    assert provisionable(pool("a", provisioned_capacity_gb=70.0)) == 30.0
    assert provisionable(pool("a", free_capacity_gb=20.0)) == 20.0


def test_a_thick_volume_needs_physical_space() -> None:
    thin = pool("a", thin_provisioning_support=True, provisioned_capacity_gb=60.0)
    thick = VolumeType("t", "t", extra_specs={"provisioning:type": "thick"})
    assert chosen([thin], request(100)) == "a"
    assert "space for 40 GiB, not 41" in str(refused([thin], request(41, thick)))


def test_a_physically_full_pool_gets_no_volumes() -> None:
    full = pool("a", thin_provisioning_support=True, free_capacity_gb=0.0)
    assert provisionable(full) == 0.0
    assert "physically full" in str(refused([full], request(1)))


def test_a_closed_pool_gets_no_volumes_and_the_error_has_its_reason() -> None:
    shut = replace(
        pool("a", thin_provisioning_support=True), closed="its metadata is 96 % full"
    )
    error = refused([shut], request(1))
    assert isinstance(error, Exhausted)
    assert "a: it is closed for new volumes: its metadata is 96 % full" in str(error)


def test_the_reserve_is_not_provisioned() -> None:
    assert provisionable(pool("a", reserved_percentage=40)) == 60.0
    nearly = pool(
        "a",
        reserved_percentage=40,
        thin_provisioning_support=True,
        free_capacity_gb=39.0,
    )
    assert provisionable(nearly) == 0.0


def test_the_error_of_a_too_large_request_names_the_provisionable() -> None:
    error = refused([pool("a")], request(500))
    assert isinstance(error, Exhausted)
    assert "size 500 GiB (a: it has space for 100 GiB, not 500)" in str(error)


def test_the_error_of_an_unsupported_type_names_the_reason() -> None:
    error = refused([pool("a", multiattach=False)], request(1, SHARED))
    assert isinstance(error, Invalid)
    assert "a: multiattach is False, not <is> True" in str(error)


def test_a_backend_that_is_down_disabled_or_in_another_zone_is_not_chosen() -> None:
    down = replace(pool("a"), problem="its storage hangs")
    assert "a: it is down: its storage hangs" in str(refused([down], request(1)))
    off = replace(pool("a"), enabled=False)
    assert "a: its service is disabled" in str(refused([off], request(1)))
    there = PlacementRequest(1, zone="mars")
    assert "zone nova, not mars" in str(refused([pool("a")], there))
    assert chosen([pool("a")], PlacementRequest(1, zone="nova")) == "a"


def test_a_request_can_require_or_exclude_a_backend() -> None:
    pools = [pool("a"), pool("b", free_capacity_gb=50.0)]
    assert chosen(pools, PlacementRequest(1, only="b")) == "b"
    assert chosen(pools, PlacementRequest(1, exclude="a")) == "b"
    said = str(refused(pools, PlacementRequest(60, only="b")))
    assert "a: only backend b is possible" in said
    assert "b: it has space for 50 GiB, not 60" in said
    assert "a: the volume is there" in str(
        refused(pools[:1], PlacementRequest(1, exclude="a"))
    )


def test_a_volume_is_not_migrated_to_disks_with_other_sectors() -> None:
    """Hosts found partitions, whose offsets are in sectors, elsewhere."""
    pools = [pool("a"), replace(pool("b"), sector=4096)]
    moved = PlacementRequest(1, exclude="a", sector=512)
    why = r"b: its disks have logical sectors of 4096 bytes and the volume's 512: "
    with pytest.raises(Invalid, match=why):
        raise refused(pools, moved)
    assert chosen(pools, replace(moved, sector=4096)) == "b"
    shown = filter_results(choose(pools, request(1), WEIGHTS), "b")
    assert shown["SectorSizeFilter"] == (
        *(True, "its disks have logical sectors of 4096 bytes"),
    )


def test_missing_space_on_a_capable_backend_is_exhausted() -> None:
    """A smaller request would succeed on the capable backend."""
    pools = [pool("a", multiattach=False), pool("b", free_capacity_gb=1.0)]
    assert isinstance(refused(pools, request(5, SHARED)), Exhausted)


def test_every_filter_runs_for_every_pool_and_only_passed_pools_are_weighed() -> None:
    pools = [pool("a", multiattach=False), pool("b"), pool("c", free_capacity_gb=50.0)]
    choice = choose(pools, request(60, SHARED), WEIGHTS)
    assert [c.pool.backend for c in choice.candidates] == ["a", "b", "c"]
    for backend in "abc":
        assert set(filter_results(choice, backend)) == set(FILTERS)
    assert filter_results(choice, "a")["CapabilitiesFilter"][0] is False
    assert filter_results(choice, "a")["CapacityFilter"][0] is True
    assert filter_results(choice, "c")["CapacityFilter"] == (
        False,
        "it has space for 50 GiB, not 60",
    )
    assert [bool(c.weigher_results) for c in choice.candidates] == [False, True, False]
    assert choice.chosen == pools[1]


@pytest.mark.parametrize(
    ("key", "wanted", "expected"),
    [
        ("volume_backend_name", "b", "b"),
        ("capabilities:volume_backend_name", "b", "b"),
        ("multiattach", "<is> True", "a"),
        ("elsewhere:key", "value", "a"),
    ],
)
def test_extra_specs_are_matched_with_capabilities(
    key: str, wanted: str, expected: str
) -> None:
    pools = [pool("a", free_capacity_gb=50.0), pool("b", free_capacity_gb=40.0)]
    assert chosen(pools, request(1, None, **{key: wanted})) == expected


@pytest.mark.parametrize(
    ("has", "wanted", "met"),
    [
        (True, "<is> True", True),
        ("yes", "<is> True", True),
        (False, "<is> True", False),
        (False, "<is> False", True),
        (None, "<is> False", False),
        (True, "True", True),
        (True, "true", False),
        ("abc", "<in> b", True),
        ("abc", "<in> d", False),
        (4, "= 3", True),
        (2, "= 3", False),
        (3, "== 3.0", True),
        (3, "!= 3", False),
        (3, ">= 3", True),
        (3, "<= 2", False),
        ("word", ">= 2", False),
        (3, ">= word", False),
        (3, ">=", False),
        ("a", "s== a", True),
        ("a", "s!= a", False),
        ("a", "s< b", True),
        ("b", "s<= a", False),
        ("b", "s> a", True),
        ("a", "s>= b", False),
        ("b", "<or> a <or> b", True),
        ("c", "<or> a <or> b", False),
        ("two words", "two words", True),
        ("", "", True),
    ],
)
def test_operators_have_the_meaning_of_cinder(has: Any, wanted: str, met: bool) -> None:
    assert extra_specs.meets(has, wanted) is met


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        ("iSCSI", True),
        ("iscsi", True),
        ("ISCSI", True),
        ("<in> iscsi", True),
        ("s== iscsi", True),
        ("NFS", False),
        ("<or> FC <or> iscsi", True),
    ],
)
def test_a_protocol_matches_all_its_spellings(wanted: str, met: bool) -> None:
    unmet = list(
        extra_specs.unmet({"storage_protocol": wanted}, {"storage_protocol": "iSCSI"})
    )
    assert (unmet == []) is met


def test_a_capability_can_be_a_list_or_nested() -> None:
    has = {"tiers": ["gold", "silver"], "deep": {"er": "yes"}}
    assert not any(
        extra_specs.unmet({"tiers": "silver", "capabilities:deep:er": "yes"}, has)
    )
    assert list(extra_specs.unmet({"capabilities:deep:est": "yes"}, has)) == [
        "deep:est is None, not yes"
    ]
