# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a host says of itself, checked; and whether it may have what it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lunshare.agent.errors import Conflict, Invalid
from lunshare.agent.records import Attachment
from lunshare.agent.states import WANTED
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import Mode, iscsi_name

_TEXT_MAX = 255


@dataclass(frozen=True, slots=True)
class Host:
    """A checked connector: who attaches, under which initiator name."""

    initiator: str
    name: str
    mountpoint: str
    mode: str | None
    connector: Mapping[str, Any]


def checked(connector: Mapping[str, Any]) -> Host:
    """Check a connector as the client sent it.

    :raises Invalid: names the field and what to give.
    """
    try:
        initiator = iscsi_name(connector.get("initiator"), "connector.initiator")
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    return Host(
        initiator=initiator,
        name=_text(connector, "host", None),
        mountpoint=_text(connector, "mountpoint", "na"),
        mode=_mode(connector.get("mode")),
        connector=connector,
    )


def resolved_mode(row: Attachment, host: Host) -> str:
    """The attachment's own mode, else the connector's, else rw."""
    return row.mode or host.mode or Mode.RW


def mixed(rows: Sequence[Attachment], row_id: str, mode: str) -> Attachment | None:
    """Another wanted attachment of the same initiator with the other mode, if any."""
    for row in rows:
        if row.id != row_id and row.status in WANTED and row.mode != mode:
            return row
    return None


def refuse_mixed(other: Attachment, mode: str) -> Conflict:
    """The 409 of an initiator that asks for both modes."""
    return Conflict(
        f"connector.initiator {other.initiator} has this volume {other.mode} by"
        f" attachment {other.id} and cannot have it {mode} too: one initiator has"
        " one write-protect bit; detach the other first, use another initiator"
        " name, or set mixed_modes_per_host = widen",
        attachment_id=other.id,
    )


def _text(connector: Mapping[str, Any], key: str, default: str | None) -> str:
    value = default if connector.get(key) is None else connector[key]
    if isinstance(value, str) and 0 < len(value) <= _TEXT_MAX and value.isprintable():
        return value
    raise Invalid(
        f"connector.{key} must be a text of 1 to {_TEXT_MAX} printable characters"
    )


def _mode(value: object) -> str | None:
    if value is None or value in (Mode.RO, Mode.RW):
        return None if value is None else str(value)
    raise Invalid("connector.mode must be ro or rw")


def is_open(row: Attachment, host: Host) -> bool:
    """Whether the attachment is open to this very initiator already."""
    return (
        row.initiator == host.initiator
        and row.status in WANTED
        and row.connection_info is not None
    )
