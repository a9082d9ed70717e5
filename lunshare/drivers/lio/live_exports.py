# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the root helper has read of targets, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lunshare.drivers.values import LiveConnector, LiveExport, Mode, Registration

#: Why an empty ACL stays, by the words of lunshare.helper.lio.kept_acls.
_LEFT = {
    "memory": "has taken the node's memory with commands that it did not receive, and"
    " is closed; detach it, and attach it again",
    "dead session": "has left a session that the kernel does not end; it can be"
    " attached to this volume after the node's next start",
    "mapped LUN": "has sent a registration (SPEC_I_PT) that the kernel does not end;"
    " after the node's next start it can be attached to this volume, and the volume can"
    " be deleted",
    "dependency": "has been named in a registration (SPEC_I_PT), and its empty ACL"
    " stays until the node's next start",
}


def live_export(fields: Mapping[str, Any]) -> LiveExport:
    """Return one export of lio.observe or lio.live."""
    if unread := fields.get("unread"):
        return LiveExport(fields["volume_id"], (), unread=unread)
    connectors = tuple(live_connector(fields) for fields in fields["connectors"])
    remains = (
        (initiator, _LEFT.get(why, "")) for initiator, why in fields["remains"].items()
    )
    return LiveExport(
        fields["volume_id"],
        connectors,
        fields["enabled"],
        tuple(sorted(remains)),
        registrations(fields["registrations"]),
    )


def registrations(records: Iterable[Mapping[str, str]]) -> tuple[Registration, ...]:
    """Return those of lio.registrations."""
    return tuple(Registration(**fields) for fields in records)


def live_connector(fields: Mapping[str, Any]) -> LiveConnector:
    """Return one host of lio.live, or that of lio.host."""
    return _connector(**fields)


def _connector(mode: str | None, addresses: list[str], **fields: Any) -> LiveConnector:
    return LiveConnector(
        mode=Mode(mode) if mode else None, addresses=tuple(addresses), **fields
    )
