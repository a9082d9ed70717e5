# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""QoS specs: limits of a volume type that its hosts enforce, and their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FRONT_END, BOTH = "front-end", "both"

#: Who enforces QoS specs: the host's hypervisor, the storage, or both.
CONSUMERS = (FRONT_END, "back-end", BOTH)

#: What Cinder uses where a request names none.
DEFAULT_CONSUMER = "back-end"

#: Limits of a host. Each may also be given per GiB of the volume.
LIMITS = (
    "read_iops_sec",
    "write_iops_sec",
    "total_iops_sec",
    "read_bytes_sec",
    "write_bytes_sec",
    "total_bytes_sec",
)

_PER_GIB, _LEAST, _MOST = "_per_gb", "_per_gb_min", "_max"

#: Keys whose values are whole numbers.
NUMBERS = frozenset(
    limit + suffix for limit in LIMITS for suffix in ("", _PER_GIB, _LEAST, _MOST)
)


@dataclass(frozen=True, slots=True)
class QosSpecs:
    """Named limits. ``specs`` are texts, as clients send them."""

    id: str
    name: str
    consumer: str
    specs: Mapping[str, str] = field(default_factory=dict)


def for_host(qos: QosSpecs | None, gib: int) -> dict[str, str] | None:
    """Return what the host of a volume of ``gib`` GiB enforces, or None.

    A limit per GiB becomes a limit of this volume: at least ``..._per_gb_min``, at
    most ``..._max``.
    """
    if qos is None or qos.consumer not in (FRONT_END, BOTH):
        return None
    specs = dict(qos.specs)
    for limit in LIMITS:
        if limit + _PER_GIB in specs:
            value = int(specs.pop(limit + _PER_GIB)) * gib
            value = max(value, int(specs.pop(limit + _LEAST, 0)))
            specs[limit] = str(min(value, int(specs.pop(limit + _MOST, value))))
    return specs
