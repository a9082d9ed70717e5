# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Records that only lunshare shows, not Cinder, as dictionaries."""

from __future__ import annotations

from typing import Any

from lunshare.agent.records import HostAccess, Orphan

View = dict[str, Any]


def host(shown: HostAccess) -> View:
    """Show the access of one host to one volume, in the rows and in the target."""
    return {
        "volume_id": shown.volume_id,
        "volume_name": shown.volume_name,
        "backend": shown.backend,
        "host": shown.host,
        "initiator": shown.initiator,
        "attachment_id": shown.attachment_id,
        "mode": shown.mode,
        "status": shown.status,
        "allowed": shown.allowed,
        "sessions": shown.sessions,
        "addresses": list(shown.addresses),
        "problem": shown.problem or None,
    }


def orphan(shown: Orphan) -> View:
    """Show an export, disk or snapshot of lunshare that has no row."""
    return {
        "kind": shown.kind,
        "id": shown.id,
        "backend": shown.backend,
        "where": shown.where,
    }
