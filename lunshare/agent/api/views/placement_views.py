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


def capabilities(shown: Pool) -> View:
    """Show one pool in the form of GET /capabilities."""
    caps = shown.capabilities
    copied = (
        "vendor_name",
        "volume_backend_name",
        "driver_version",
        "storage_protocol",
    )
    return {
        "namespace": f"OS::Storage::Capabilities::{shown.name.partition('#')[0]}",
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


def choice(shown: Choice) -> View:
    """Show every pool with its filter and weigher results, and the chosen one."""
    request = shown.request
    return {
        "asked": {
            "size": request.size,
            "volume_type": request.volume_type.name if request.volume_type else None,
            "extra_specs": dict(request.specs),
            "availability_zone": request.zone,
        },
        "chosen": shown.chosen.name if shown.chosen else None,
        "pools": [_candidate(each) for each in shown.candidates],
    }


def _candidate(shown: Candidate) -> View:
    return {
        "name": shown.pool.name,
        "passed": not shown.failed,
        "filters": [
            {"name": each.filter, "passed": each.passed, "reason": each.reason}
            for each in shown.filter_results
        ],
        "weighers": [
            {
                "name": each.weigher,
                "value": each.value,
                "multiplier": each.multiplier,
                "weight": each.weight,
            }
            for each in shown.weigher_results
        ],
        "weight": None if shown.failed else round(shown.weight, 6),
    }
