# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check the connector that a host sends; what the host gets to log in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from oslo_log import log

from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import Attachment, HostConnector, Volume
from lunshare.agent.model.states import WANTED
from lunshare.agent.service.attachments import wanted_state
from lunshare.agent.service.attachments.wanted_state import Wanted
from lunshare.agent.service.driver_values import driver_volume
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import host_address, iscsi_name

LOG = log.getLogger(__name__)

_TEXT_MAX = 255
_SECRETS = ("auth_username", "auth_password")
#: Bytes of JSON. It is stored, and every list with it reads it; os-brick's has 600.
_MAX_SIZE = 8192
_PLAIN_HOST = re.compile(r"[a-z0-9.-]{1,128}")


def parse(connector: Mapping[str, Any]) -> HostConnector:
    """Check a connector as the client sent it.

    Without an initiator it is named by its host: see ``check_unnamed``.

    :raises Invalid: names the field and what to give.
    """
    _check_size(connector)
    sent, mountpoint = connector.get("host"), connector.get("mountpoint")
    host = host_name(sent, "connector.host") if sent else None
    try:
        text = connector.get("initiator") or (host and _name_of_host(host))
        initiator = iscsi_name(text, "connector.initiator")
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    return HostConnector(
        initiator=initiator,
        host=host or host_name(sent, "connector.host"),
        mountpoint=_text(
            "na" if mountpoint is None else mountpoint, "connector.mountpoint"
        ),
        mode=wanted_state.parse_mode(connector.get("mode"), "connector.mode"),
        sent=_with_plain_address(connector),
    )


def _with_plain_address(connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connector with its ip as rows are searched for it."""
    plain = host_address(connector.get("ip"))
    return dict(connector) if plain is None else {**connector, "ip": plain}


def _check_size(connector: Mapping[str, Any]) -> None:
    """:raises Invalid: it is larger than that of any host."""
    size = len(orjson.dumps(connector))
    if size > _MAX_SIZE:
        raise Invalid(
            f"connector has {size} bytes of JSON, more than {_MAX_SIZE}: give only what"
            " os-brick says of the host"
        )


def check_unnamed(protocol: str) -> None:
    """Check that a target of this protocol needs no name of an initiator.

    :raises Invalid: it does.
    """
    if protocol == "iSCSI":
        raise Invalid(
            "connector.initiator is missing: give the iSCSI name of the host, such as"
            " iqn.1994-05.com.example:host1"
        )


def check_address(connector: HostConnector, backend: str) -> None:
    """Check that a host says where it connects from.

    :raises Invalid: it does not, and so it would reach no portal.
    """
    if host_address(connector.sent.get("ip")) is None:
        raise Invalid(
            "connector.ip is missing, or no IP address of one host: give the address"
            f" from which the host connects, since the portals of backend {backend}"
            " are closed to others (or an administrator names the host's network in"
            " initiator_networks)"
        )


def _name_of_host(host: str) -> str:
    """Return the name by which a host without iSCSI is known, in rows and reports."""
    name = host.lower()
    if not _PLAIN_HOST.fullmatch(name):
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"iqn.2000-01.invalid.host:{name}"


def host_name(value: object, field: str) -> str:
    """Return the name of a host as rows have it, by which it can be fenced.

    One that is an iSCSI name is in lower case, since such names have no case.

    :raises Invalid: no host has such a name.
    """
    return iscsi_name(value) if is_initiator(value) else _text(value, field)


def is_initiator(name: object) -> bool:
    """Whether a name has the form of an iSCSI name."""
    try:
        iscsi_name(name)
    except InvalidValue:
        return False
    return True


def is_open(row: Attachment, connector: HostConnector) -> bool:
    """Whether the attachment is already open to this initiator."""
    return (
        row.initiator == connector.initiator
        and row.status in WANTED
        and row.connection_info is not None
    )


def _text(value: object, field: str) -> str:
    if isinstance(value, str) and 0 < len(value) <= _TEXT_MAX and value.isprintable():
        return value
    raise Invalid(f"{field} must be a text of 1 to {_TEXT_MAX} printable characters")


def connection_info(
    drivers: Backend, volume: Volume, row: Attachment, wanted: Wanted
) -> dict[str, Any]:
    """Return connection_info of a row without credentials.

    ``wanted`` is that of its own initiator, and of no other.
    """
    (access,) = wanted.accesses
    info = drivers.connection_info(driver_volume(volume), access)
    info = {key: value for key, value in info.items() if key not in _SECRETS}
    if wanted.widened:
        info["mixed_modes"] = (
            "widened: this initiator has an attachment of each mode, so the"
            " target lets this host write"
        )
    connector = row.connector or {}
    return info | {
        "access_mode": row.mode,
        "attachment_id": row.id,
        "cacheable": False,
        "encrypted": False,
        "enforce_multipath": bool(connector.get("enforce_multipath", False)),
    }


def with_secrets(row: Attachment) -> Attachment:
    """Return the attachment with its CHAP credentials, for its own host only."""
    info = row.connection_info
    if info is None or "auth_method" not in info:
        return row
    secrets = {name: getattr(row, name) for name in _SECRETS}
    return replace(row, connection_info={**info, **secrets})


def log_change(done: str, rows: Sequence[Attachment]) -> None:
    """Log what was done with attachments of a volume: one line, however many."""
    row, *more = rows
    LOG.info(
        "[%s] %s: attachment=%s volume=%s initiator=%s mode=%s%s",
        row.attached_host,
        done,
        row.id,
        row.volume_id,
        row.initiator,
        row.mode,
        f" and {len(more)} more, to attachment={more[-1].id}" if more else "",
    )
