# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Transfers as the API shows them."""

from __future__ import annotations

from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.model.project_records import Transfer

View = dict[str, Any]


def transfer_brief(transfer: Transfer, base: str) -> View:
    """Show an offer in a list; ``base`` is the start of every URL of the client."""
    href = f"{base}/volume-transfers/{transfer.id}"
    return {
        "id": transfer.id,
        "name": transfer.name,
        "volume_id": transfer.volume_id,
        "links": [{"rel": "self", "href": href}, {"rel": "bookmark", "href": href}],
    }


def transfer(transfer: Transfer, version: Version, base: str) -> View:
    """Show an offer in full, without its key. One that was taken is deleted."""
    later: tuple[tuple[Version, str, Any], ...] = (
        (microversions.TRANSFER_SNAPSHOTS, "no_snapshots", transfer.no_snapshots),
        (
            microversions.TRANSFER_HISTORY,
            "source_project_id",
            transfer.source_project_id,
        ),
        (microversions.TRANSFER_HISTORY, "destination_project_id", None),
        (microversions.TRANSFER_HISTORY, "accepted", False),
    )
    return {
        **transfer_brief(transfer, base),
        "created_at": transfer.created_at.isoformat(timespec="microseconds"),
        **{key: value for since, key, value in later if version >= since},
    }
