# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the backend of a new volume, and say why when there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.errors import Exhausted, Invalid
from agent.records import Pool, VolumeType

_SCOPE = "capabilities:"


def choose(pools: Iterable[Pool], size: int, kind: VolumeType | None) -> str:
    """The name of the backend with the most room for ``size`` GiB of this type.

    :raises Invalid: no backend can do what the type asks for.
    :raises Exhausted: those that can have no room.
    """
    able: list[Pool] = []
    reasons: list[str] = []
    for pool in pools:
        why = lacks(pool, kind) if pool.up else "it is down or disabled"
        able.append(pool) if why is None else reasons.append(f"{pool.backend}: {why}")
    if not able:
        raise Invalid(f"no backend can hold this volume ({'; '.join(reasons)})")
    roomy = [pool for pool in able if size <= room(pool)]
    if not roomy:
        rooms = ", ".join(f"{pool.backend} {room(pool):.0f} GiB" for pool in able)
        raise Exhausted(
            f"size {size} GiB is more than any backend has room for ({rooms}):"
            " ask for less or free some"
        )
    return max(roomy, key=room).backend


def room(pool: Pool) -> float:
    """GiB that may still be promised; none at all when the pool is physically full.

    A thick pool promises what is free, a thin one its ratio of the whole.
    """
    caps = pool.capabilities
    total, free = caps["total_capacity_gb"], caps["free_capacity_gb"]
    reserve = total * caps["reserved_percentage"] / 100
    if free <= reserve:
        return 0.0
    if not caps["thin_provisioning_support"]:
        return float(free - reserve)
    promised = caps["provisioned_capacity_gb"]
    return float((total - reserve) * caps["max_over_subscription_ratio"] - promised)


def lacks(pool: Pool, kind: VolumeType | None) -> str | None:
    """What the type asks for and the pool has not, or None."""
    for key, wanted in (kind.extra_specs if kind else {}).items():
        why = _unmet(pool.capabilities, key, wanted)
        if why is not None:
            return why
    return None


def _unmet(capabilities: Mapping[str, object], key: str, wanted: str) -> str | None:
    """Why one extra spec is not met. Specs of another scope are not for us."""
    if ":" in key and not key.startswith(_SCOPE):
        return None
    name = key.removeprefix(_SCOPE)
    has = capabilities.get(name)
    met = (
        str(has).lower() == wanted.removeprefix("<is>").strip().lower()
        if wanted.startswith("<is>")
        else str(has) == wanted
    )
    return None if met else f"{name} is {has}, not {wanted}"
