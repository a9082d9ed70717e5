# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which attachment an action of a volume means. Pure functions of rows.

The rows are those that such actions made, oldest first. A row without an initiator
has no host yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import Attachment, Volume
from lunshare.agent.model.states import AttachStatus
from lunshare.drivers.values import plain_name

Rows = Sequence[Attachment]

_UNUSED = frozenset({AttachStatus.ATTACHING, AttachStatus.ERROR_ATTACHING})


def is_unopened(row: Attachment) -> bool:
    """Whether it only reserves the volume, and no host gets access by it."""
    return not row.initiators and row.status is not AttachStatus.ATTACHED


def to_unreserve(rows: Rows, multiattach: bool) -> Attachment | None:
    """Return the reservation that nobody has used.

    A plain volume has one host, so its reservation is meant even when it is open.
    """
    unused = [row for row in rows if row.status in _UNUSED and not row.initiators]
    if unused or multiattach:
        return next(iter(unused), None)
    return _first(rows, lambda row: row.status in _UNUSED)


def to_connect(rows: Rows, initiator: str) -> Attachment | None:
    """Return the row that opens, or has opened, the volume to an initiator.

    One that is being attached or detached comes first: the request is repeated. Then
    a reservation, which may be for a second server of the host.
    """
    own = [row for row in rows if row.initiator == initiator]
    return (
        _first(own, lambda row: row.status in _UNUSED or row.announced)
        or _first(rows, lambda row: row.status in _UNUSED and row.initiator is None)
        or _first(own, lambda row: row.status is AttachStatus.ATTACHED)
    )


def to_attach(rows: Rows, host: str | None, multiattach: bool) -> Attachment | None:
    """Return the row that os-attach completes, None if it has to be made.

    :raises Invalid: several hosts are being attached, and ``host`` is none of them.
    """
    waiting = [row for row in rows if row.status is AttachStatus.ATTACHING]
    if multiattach and host is not None:
        waiting = [
            row for row in waiting if row.attached_host is None or _is_host(row, host)
        ]
    named = _first(waiting, lambda row: host is not None and _is_host(row, host))
    if named is not None or not waiting:
        return named
    if len(waiting) > 1:
        raise Invalid(
            f"os-attach.host_name: {len(waiting)} hosts are being attached; give the"
            " name that the connector of this one has, or use the attachments API."
        )
    return waiting[0]


def is_attached(rows: Rows, instance: str | None, host: str | None) -> bool:
    """Whether this server is attached, or this host where no server is named."""
    return any(
        row.status is AttachStatus.ATTACHED
        and not row.announced
        and (
            row.instance_uuid == instance
            if instance is not None
            else row.instance_uuid is None and _is_host(row, host)
        )
        for row in rows
    )


def to_terminate(rows: Rows, initiator: str) -> Attachment | None:
    """Return the row whose access is closed.

    Of several attached servers of one host, none is: os-detach names one of them.
    """
    own = [row for row in rows if initiator in row.initiators]
    ending = _first(own, lambda row: row.former_initiator == initiator or row.announced)
    if ending is not None:
        return ending
    attaching = _first(own, lambda row: row.status in _UNUSED)
    return attaching or (own[0] if len(own) == 1 else None)


def only_initiator(rows: Rows, volume_id: str) -> str | None:
    """Return the only initiator of all rows of a volume, None if there is none.

    :raises Invalid: several have it.
    """
    names = {name for row in rows for name in row.initiators}
    if len(names) > 1:
        raise Invalid(
            f"os-terminate_connection.connector: {len(names)} hosts have volume"
            f" {volume_id}; give the connector of one."
        )
    return next(iter(names), None)


def to_detach(volume: Volume, attachment_id: str | None, action: str) -> str | None:
    """Return the id of the attachment that an action means, None if there is none.

    :raises NotFound: the volume has no attachment with this id.
    :raises Invalid: it has several, and no id is given.
    """
    ids = [row.id for row in volume.attachments]
    if attachment_id is None and len(ids) > 1:
        raise Invalid(
            f"{action}.attachment_id: volume {volume.id} has {len(ids)} attachments;"
            " give the id of one."
        )
    if attachment_id is not None and attachment_id not in ids:
        raise NotFound("attachment", attachment_id)
    return attachment_id or next(iter(ids), None)


def _is_host(row: Attachment, host: str | None) -> bool:
    """Whether a row has this host, or none where that is None."""
    if host is None or row.attached_host is None:
        return host is row.attached_host
    return plain_name(row.attached_host) == plain_name(host)


def _first(rows: Rows, chosen: Callable[[Attachment], bool]) -> Attachment | None:
    return next((row for row in rows if chosen(row)), None)
