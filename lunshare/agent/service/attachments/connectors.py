# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check the connector that a host sends, and the mode that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import Attachment, HostConnector, Mode
from lunshare.agent.model.states import WANTED
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import iscsi_name

_TEXT_MAX = 255


def parse(connector: Mapping[str, Any]) -> HostConnector:
    """Check a connector as the client sent it.

    :raises Invalid: names the field and what to give.
    """
    try:
        initiator = iscsi_name(connector.get("initiator"), "connector.initiator")
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    return HostConnector(
        initiator=initiator,
        host=_text(connector, "host", None),
        mountpoint=_text(connector, "mountpoint", "na"),
        mode=_mode(connector.get("mode")),
        sent=dict(connector),
    )


def resolve_mode(asked: Mode | None, connector: HostConnector) -> Mode:
    """Return the attachment's own mode, else the connector's, else rw."""
    return asked or connector.mode or Mode.RW


def other_mode(
    rows: Sequence[Attachment], row_id: str, mode: Mode
) -> Attachment | None:
    """Return another wanted attachment of the initiator with the other mode, if any."""
    for row in rows:
        if row.id != row_id and row.status in WANTED and row.mode != mode:
            return row
    return None


def is_open(row: Attachment, connector: HostConnector) -> bool:
    """Whether the attachment is already open to this initiator."""
    return (
        row.initiator == connector.initiator
        and row.status in WANTED
        and row.connection_info is not None
    )


def _text(connector: Mapping[str, Any], key: str, default: str | None) -> str:
    value = default if connector.get(key) is None else connector[key]
    if isinstance(value, str) and 0 < len(value) <= _TEXT_MAX and value.isprintable():
        return value
    raise Invalid(
        f"connector.{key} must be a text of 1 to {_TEXT_MAX} printable characters"
    )


def _mode(value: object) -> Mode | None:
    if value is None or value in (Mode.RO, Mode.RW):
        return None if value is None else Mode(str(value))
    raise Invalid("connector.mode must be ro or rw")
