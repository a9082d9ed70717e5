# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Why an attach or a detach failed, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lunshare.agent.backends import NodeBackend
from lunshare.agent.model.errors import BackendFailed, Busy, Conflict
from lunshare.agent.model.records import Attachment, Mode
from lunshare.drivers.writers import MAX_WRITERS, WRITERS, among


def mixed_modes(other: Attachment, mode: Mode) -> Conflict:
    """Return the 409 for an initiator that asks for both modes."""
    return Conflict(
        f"connector.initiator {other.initiator} has this volume {other.mode} by"
        f" attachment {other.id} and cannot have it {mode} too: one initiator has"
        " one write-protect bit; detach the other first, use another initiator"
        " name, or set mixed_modes_per_host = widen",
        attachment_id=other.id,
    )


def not_a_writer(row: Attachment) -> Conflict:
    """Return the 409 for rw of a host that the writers policy does not name."""
    names = [row.instance_uuid, row.attached_host, row.initiator]
    return Conflict(
        f"attachment mode rw: {WRITERS} of volume {row.volume_id} or of its type does"
        f" not name {among(filter(None, names)) or 'this attachment'}; attach it ro, or"
        " have it added to the list"
    )


def too_many_writers(
    row: Attachment, most: int, others: Sequence[Attachment]
) -> Conflict:
    """Return the 409 for rw of one host more than may write."""
    ids = [other.id for other in others]
    return Conflict(
        f"attachment mode rw: {MAX_WRITERS} of volume {row.volume_id} or of its type is"
        f" {most}, and it has {len(others)} rw attachments"
        f" ({among(ids) or 'none'}); attach it ro, or delete one of those first",
        attachment_ids=ids,
    )


def writers_in_the_way(volume_id: str, rows: Sequence[Attachment]) -> Conflict:
    """Return the 409 for a writers policy that would exclude hosts that may write."""
    ids = [row.id for row in rows]
    return Conflict(
        f"{WRITERS}, {MAX_WRITERS}: volume {volume_id} has rw attachments that this"
        f" policy would not allow ({among(ids)}); delete them first, or give them the"
        " mode ro",
        attachment_ids=ids,
    )


def not_connectable(row: Attachment) -> Conflict:
    """Return the 409 for an attachment whose status allows no connector."""
    return Conflict(
        f"attachment {row.id} is {row.status} and cannot be connected: delete it and"
        " create another one"
    )


def mode_not_changeable(row: Attachment) -> Conflict:
    """Return the 409 for a change of mode of an attachment that is not open."""
    made = f" and was made by the action {row.legacy}" if row.legacy else ""
    return Conflict(
        f"attachment.mode: attachment {row.id} is {row.status}{made}; the mode of an"
        " attachment with a connector, whose access is open, can be changed; delete"
        " this one and create another one"
    )


def handover_pending(volume_id: str) -> Conflict:
    """Return the 409 for a volume whose write access is being handed over."""
    return Conflict(
        f"volume {volume_id} has a handover that is pending; GET"
        f" /volumes/{volume_id}/handover shows it; try again when it has ended, or"
        " delete the attachment that it names as to, which ends it"
    )


def host_fenced(field: str, host: str | None, fence: Any) -> Conflict:
    """Return the 409 for an access of a host that is fenced."""
    return Conflict(
        f"{field}: host {host} is fenced (since {fence.created_at.isoformat()}), and"
        f" gets no access; an administrator can unfence {fence.host}"
    )


def lease_ended(row: Attachment) -> Conflict:
    """Return the 409 for a lease that cannot be renewed."""
    has = "no lease" if row.lease is None else "a lease that has ended"
    return Conflict(
        f"lease: attachment {row.id} is {row.status} and has {has}; when it is ro, give"
        " it the mode rw with a new lease"
    )


def nobody_is_next(volume_id: str) -> Conflict:
    """Return the 409 for a lease after which the next writer of no list follows."""
    return Conflict(
        f"attachment.lease.then: volume {volume_id} has no {WRITERS}, so nobody is"
        " next; set that, or leave then out"
    )


def readonly(row: Attachment) -> Conflict:
    """Return the 409 for rw where the volume has the flag readonly."""
    return Conflict(
        f"attachment.mode: volume {row.volume_id} is readonly; give ro, or take the"
        " flag away while the volume is available"
    )


def not_completable(row: Attachment) -> Conflict:
    """Return the 409 for an attachment that has no host to confirm."""
    return Conflict(
        f"attachment {row.id} is {row.status} and cannot be completed: connect it first"
    )


def changed_meanwhile(volume_id: str) -> Busy:
    """Return the 409 for an attachment that ended while it was completed."""
    return Busy(f"volume {volume_id} has just changed: try again")


def still_open(rows: Sequence[Attachment], error: BackendFailed) -> BackendFailed:
    """Return the error of a failed detach, with what an operator must know."""
    row, *more = rows
    others = f", as are {len(more)} more" if more else ""
    return type(error)(
        f"attachment {row.id} of volume {row.volume_id} is error_detaching{others}, and"
        f" host {row.attached_host} may still have access; each reconcile tries again,"
        f" or repeat the request: {error}",
        **error.fields,
    )


def not_enforced(backend: NodeBackend) -> Conflict:
    """Return the 409 for an attachment ro where the target lets every host write."""
    return Conflict(
        f"attachment mode ro: {_target(backend)} does not enforce read-only, and"
        " the host could write; attach it rw, or keep the volume on a backend whose"
        " target does, such as target_driver = lio"
    )


def not_fenced(backend: NodeBackend, initiator: str) -> Conflict:
    """Return the 409 for another connector where the access of the first cannot end."""
    return Conflict(
        f"connector.initiator: the attachment is of {initiator}, and"
        f" {_target(backend)} does not end a host's access; delete the attachment"
        " when that host has closed the volume, and create another one"
    )


def ends_no_access(backend: NodeBackend) -> str:
    """Return why a fence cannot be proven."""
    return f"{_target(backend)} does not end a host's access: stop the host"


def _target(backend: NodeBackend) -> str:
    return f"target_driver {backend.options['target_driver']} of backend {backend.name}"
