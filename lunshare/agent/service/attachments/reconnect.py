# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a connect of an attachment that exists needs, beside a new attachment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import Attachment, HostConnector, Volume
from lunshare.agent.model.states import VolumeStatus


def available_volume(connection: Connection, row: Attachment) -> Volume:
    """Return the volume of an attachment.

    :raises NotFound: the volume.
    :raises Conflict: an operation works on it, or its status is an error.
    """
    volume = volumes.require_row(connection, row.volume_id)
    if volume.own_status is not VolumeStatus.AVAILABLE:
        raise Conflict(f"volume {volume.id} is {volume.status}; it must be available")
    return volume


def refresh(db: Database, row: Attachment, connector: HostConnector) -> Attachment:
    """Store what else the same initiator sent; do not touch the target."""
    if connector.sent == row.connector and row.answered:
        return row
    values: dict[str, Any] = {
        "connector": connector.sent,
        "attached_host": connector.host,
        "mountpoint": connector.mountpoint,
        "answered": True,  # its client names it
    }
    if row.connection_info is not None:
        multipath = bool(connector.sent.get("enforce_multipath", False))
        info = {**row.connection_info, "enforce_multipath": multipath}
        values["connection_info"] = info
    with db.writing() as connection:
        attachments.set_values(connection, row.id, **values)
    return replace(row, **values)
