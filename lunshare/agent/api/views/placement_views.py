# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pool capabilities, and why a pool was chosen, as the API shows them."""

from __future__ import annotations

from typing import Any

from lunshare.agent.model.records import Pool
from lunshare.agent.service.scheduling.explanation import Candidate, Choice

View = dict[str, Any]

#: What a volume type may require of a pool, as GET /capabilities describes it.
_PROPERTIES = {
    "multiattach": "One volume may be attached to several hosts at once.",
    "thin_provisioning_support": "A volume uses space as it is written.",
    "online_extend_support": "A volume may be extended while hosts use it.",
    "replication_enabled": "Volumes are copied to another node.",
    "QoS_support": "The I/O of a host to a volume may be limited.",
}


def capabilities(pool: Pool) -> View:
    """Show one pool in the form of GET /capabilities."""
    caps = pool.capabilities
    copied = (
        "vendor_name",
        "volume_backend_name",
        "driver_version",
        "storage_protocol",
    )
    return {
        "namespace": f"OS::Storage::Capabilities::{pool.name.partition('#')[0]}",
        **{key: caps[key] for key in copied},
        "pool_name": caps["pool_name"],
        "display_name": caps["volume_backend_name"],
        "description": "Block volumes that many hosts may share.",
        "visibility": "public",
        "replication_targets": [],
        "properties": {
            key: {
                "title": key,
                "description": text,
                "type": "boolean",
                "default": caps[key],
            }
            for key, text in _PROPERTIES.items()
        },
    }


def choice(choice: Choice) -> View:
    """Show every pool with its filter and weigher results, and the chosen one."""
    request = choice.request
    return {
        "asked": {
            "size": request.size,
            "volume_type": request.volume_type.name if request.volume_type else None,
            "extra_specs": dict(request.specs),
            "availability_zone": request.zone,
        },
        "chosen": choice.chosen.name if choice.chosen else None,
        "pools": [_candidate(candidate) for candidate in choice.candidates],
    }


def _candidate(candidate: Candidate) -> View:
    return {
        "name": candidate.pool.name,
        "passed": not candidate.failed,
        "filters": [
            {"name": result.filter, "passed": result.passed, "reason": result.reason}
            for result in candidate.filter_results
        ],
        "weighers": [
            {
                "name": result.weigher,
                "value": result.value,
                "multiplier": result.multiplier,
                "weight": result.weight,
            }
            for result in candidate.weigher_results
        ],
        "weight": None if candidate.failed else round(candidate.weight, 6),
    }
