# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every status, and every allowed change from one to the next.

The names are those of the Block Storage API. A volume's row stores only its own
status. The status that a client sees is derived from it and from the attachments by
``volume_status``, so the two can never disagree.
"""

from __future__ import annotations

import enum
from collections.abc import Collection


class VolumeStatus(enum.StrEnum):
    """The statuses of a volume: those that its row stores, then derived ones."""

    CREATING = "creating"
    AVAILABLE = "available"
    ERROR = "error"
    DELETING = "deleting"
    ERROR_DELETING = "error_deleting"
    EXTENDING = "extending"
    ERROR_EXTENDING = "error_extending"
    REVERTING = "reverting"
    MANAGING = "managing"
    ERROR_MANAGING = "error_managing"
    UNMANAGING = "unmanaging"
    ERROR_UNMANAGING = "error_unmanaging"
    RETYPING = "retyping"
    MAINTENANCE = "maintenance"
    AWAITING_TRANSFER = "awaiting-transfer"
    # Derived from attachments, never stored.
    RESERVED = "reserved"
    ATTACHING = "attaching"
    DETACHING = "detaching"
    IN_USE = "in-use"


class AttachStatus(enum.StrEnum):
    """The statuses of an attachment."""

    RESERVED = "reserved"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DETACHED = "detached"
    ERROR_ATTACHING = "error_attaching"
    ERROR_DETACHING = "error_detaching"


class HandoverStatus(enum.StrEnum):
    """How a handover of write access stands."""

    PENDING = "fence pending"
    PROMOTING = "promoting"
    DONE = "done"
    FAILED = "failed"


class FenceKind(enum.StrEnum):
    """What a fence takes from a host: all access, or only writing."""

    ALL = "all"
    WRITES = "writes"


#: While one of these lasts, nobody else gets write access to the volume.
OPEN_HANDOVER = frozenset({HandoverStatus.PENDING, HandoverStatus.PROMOTING})


class SnapshotStatus(enum.StrEnum):
    """The statuses of a snapshot."""

    CREATING = "creating"
    AVAILABLE = "available"
    ERROR = "error"
    DELETING = "deleting"
    ERROR_DELETING = "error_deleting"
    MANAGING = "managing"
    UNMANAGING = "unmanaging"


#: From, to, and when. Any other change is a bug and is refused.
VOLUME_TRANSITIONS: tuple[tuple[VolumeStatus, VolumeStatus, str], ...] = (
    (VolumeStatus.CREATING, VolumeStatus.AVAILABLE, "the disk is created"),
    (VolumeStatus.CREATING, VolumeStatus.ERROR, "the disk could not be created"),
    (VolumeStatus.CREATING, VolumeStatus.DELETING, "a create that hangs is cancelled"),
    (VolumeStatus.AVAILABLE, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR_DELETING, VolumeStatus.DELETING, "a delete is retried"),
    (VolumeStatus.DELETING, VolumeStatus.ERROR_DELETING, "the disk was not deleted"),
    (VolumeStatus.AVAILABLE, VolumeStatus.EXTENDING, "an extend is accepted"),
    (VolumeStatus.EXTENDING, VolumeStatus.AVAILABLE, "it is done, or it was refused"),
    (VolumeStatus.EXTENDING, VolumeStatus.ERROR_EXTENDING, "its size is unknown"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.EXTENDING, "the extend is retried"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.AVAILABLE, VolumeStatus.REVERTING, "a revert is accepted"),
    (VolumeStatus.REVERTING, VolumeStatus.AVAILABLE, "it is done, or it was refused"),
    (VolumeStatus.REVERTING, VolumeStatus.ERROR, "it is unknown which bytes it has"),
    (VolumeStatus.ERROR, VolumeStatus.REVERTING, "a failed revert is retried"),
    (VolumeStatus.MANAGING, VolumeStatus.AVAILABLE, "the disk is managed"),
    (VolumeStatus.MANAGING, VolumeStatus.ERROR_MANAGING, "the manage failed"),
    (VolumeStatus.MANAGING, VolumeStatus.DELETING, "a failed manage is cleaned up"),
    (VolumeStatus.ERROR_MANAGING, VolumeStatus.DELETING, "a delete unmanages the disk"),
    (VolumeStatus.AVAILABLE, VolumeStatus.UNMANAGING, "an unmanage is accepted"),
    (VolumeStatus.UNMANAGING, VolumeStatus.AVAILABLE, "the unmanage was refused"),
    (VolumeStatus.UNMANAGING, VolumeStatus.ERROR_UNMANAGING, "the unmanage failed"),
    (VolumeStatus.ERROR_UNMANAGING, VolumeStatus.UNMANAGING, "it is retried"),
    (VolumeStatus.ERROR_UNMANAGING, VolumeStatus.AVAILABLE, "it is reset"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.AVAILABLE, "it is reset"),
    (VolumeStatus.ERROR, VolumeStatus.AVAILABLE, "a failed revert is reset"),
    (VolumeStatus.AVAILABLE, VolumeStatus.AVAILABLE, "it has another type"),
    (VolumeStatus.AVAILABLE, VolumeStatus.RETYPING, "a retype has to migrate it"),
    (VolumeStatus.RETYPING, VolumeStatus.AVAILABLE, "it is migrated, or it failed"),
    (VolumeStatus.AVAILABLE, VolumeStatus.MAINTENANCE, "a migration is accepted"),
    (VolumeStatus.MAINTENANCE, VolumeStatus.AVAILABLE, "it is migrated, or it failed"),
    (VolumeStatus.AVAILABLE, VolumeStatus.AWAITING_TRANSFER, "it is offered"),
    (VolumeStatus.AWAITING_TRANSFER, VolumeStatus.AVAILABLE, "it is taken, or not"),
)

SNAPSHOT_TRANSITIONS: tuple[tuple[SnapshotStatus, SnapshotStatus, str], ...] = (
    (SnapshotStatus.CREATING, SnapshotStatus.AVAILABLE, "the snapshot is created"),
    (SnapshotStatus.CREATING, SnapshotStatus.ERROR, "it could not be created"),
    (SnapshotStatus.CREATING, SnapshotStatus.DELETING, "a failed create is cleaned up"),
    (SnapshotStatus.AVAILABLE, SnapshotStatus.DELETING, "a delete is accepted"),
    (SnapshotStatus.ERROR, SnapshotStatus.DELETING, "a delete is accepted"),
    (SnapshotStatus.ERROR_DELETING, SnapshotStatus.DELETING, "the delete is retried"),
    (SnapshotStatus.DELETING, SnapshotStatus.ERROR_DELETING, "it was not deleted"),
    (SnapshotStatus.MANAGING, SnapshotStatus.AVAILABLE, "the snapshot is managed"),
    (SnapshotStatus.MANAGING, SnapshotStatus.ERROR, "the manage failed"),
    (SnapshotStatus.MANAGING, SnapshotStatus.DELETING, "a failed manage is cleaned up"),
    (SnapshotStatus.AVAILABLE, SnapshotStatus.UNMANAGING, "an unmanage is accepted"),
    (SnapshotStatus.UNMANAGING, SnapshotStatus.AVAILABLE, "the unmanage was refused"),
    (SnapshotStatus.UNMANAGING, SnapshotStatus.UNMANAGING, "it failed, and is retried"),
)

ATTACHMENT_TRANSITIONS: tuple[tuple[AttachStatus, AttachStatus, str], ...] = (
    (AttachStatus.RESERVED, AttachStatus.ATTACHING, "a connector is set"),
    (AttachStatus.RESERVED, AttachStatus.ATTACHED, "completed with no connector"),
    (AttachStatus.ATTACHING, AttachStatus.ATTACHING, "another connector is set"),
    (AttachStatus.ATTACHING, AttachStatus.ATTACHED, "the host says it is ready"),
    (AttachStatus.ATTACHING, AttachStatus.ERROR_ATTACHING, "the target refused"),
    (AttachStatus.ATTACHED, AttachStatus.ATTACHING, "another connector is set"),
    (AttachStatus.ATTACHED, AttachStatus.ATTACHED, "completed twice"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.ATTACHING, "the connect is retried"),
    (AttachStatus.RESERVED, AttachStatus.DETACHED, "deleted before it was connected"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.DETACHED, "nothing is open"),
    (AttachStatus.ATTACHING, AttachStatus.DETACHED, "an unused reservation ends"),
    (AttachStatus.ATTACHING, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ATTACHED, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ERROR_DETACHING, AttachStatus.DETACHING, "a detach is retried"),
    (AttachStatus.DETACHING, AttachStatus.DETACHING, "a detach is retried"),
    (AttachStatus.DETACHING, AttachStatus.DETACHED, "the access is closed"),
    (AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING, "the access may be open"),
    (AttachStatus.ERROR_DETACHING, AttachStatus.DETACHED, "a forced detach is done"),
)

#: A snapshot can be deleted in these.
DELETABLE_SNAPSHOT = frozenset(
    {SnapshotStatus.AVAILABLE, SnapshotStatus.ERROR, SnapshotStatus.ERROR_DELETING}
)

#: An administrator can reset these to available, if the disk exists.
RESETTABLE = frozenset(
    {VolumeStatus.ERROR, VolumeStatus.ERROR_EXTENDING, VolumeStatus.ERROR_UNMANAGING}
)

#: An administrator can set these (os-reset_status). That starts no operation.
#: The row keeps its former status, and recovery leaves it alone.
SETTABLE = frozenset(
    {
        VolumeStatus.CREATING,
        VolumeStatus.ERROR,
        VolumeStatus.ERROR_DELETING,
        VolumeStatus.EXTENDING,
        VolumeStatus.RETYPING,
        VolumeStatus.MAINTENANCE,
    }
)

#: An operation works on a volume in one of these, and its end writes the next status.
RUNNING = frozenset(
    {
        VolumeStatus.CREATING,
        VolumeStatus.DELETING,
        VolumeStatus.EXTENDING,
        VolumeStatus.REVERTING,
        VolumeStatus.MANAGING,
        VolumeStatus.UNMANAGING,
        VolumeStatus.RETYPING,
        VolumeStatus.MAINTENANCE,
    }
)

#: The row's backend has a complete disk of a volume in one of these.
HAS_DISK = frozenset(
    {
        VolumeStatus.AVAILABLE,
        VolumeStatus.EXTENDING,
        VolumeStatus.ERROR_EXTENDING,
        VolumeStatus.RETYPING,
        VolumeStatus.MAINTENANCE,
        VolumeStatus.AWAITING_TRANSFER,
    }
)

#: Operations that failed and are retried, less and less often.
FAILED = frozenset(
    {
        VolumeStatus.ERROR_DELETING,
        VolumeStatus.ERROR_UNMANAGING,
        SnapshotStatus.ERROR_DELETING,
    }
)

#: Operations in progress, which the next reconcile resumes.
UNFINISHED = frozenset(
    {
        VolumeStatus.CREATING,
        VolumeStatus.DELETING,
        VolumeStatus.ERROR_DELETING,
        VolumeStatus.ERROR_UNMANAGING,
        VolumeStatus.EXTENDING,
        VolumeStatus.ERROR_EXTENDING,
        VolumeStatus.REVERTING,
        VolumeStatus.MANAGING,
        VolumeStatus.UNMANAGING,
        VolumeStatus.RETYPING,
        VolumeStatus.MAINTENANCE,
    }
)

#: The target should have an access for an attachment in one of these.
WANTED = frozenset({AttachStatus.ATTACHING, AttachStatus.ATTACHED})

#: A detach was accepted, and the row is deleted at its end.
ENDING = frozenset({AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING})

#: The target may have an access for an attachment in one of these.
POSSIBLE = WANTED | ENDING | {AttachStatus.ERROR_ATTACHING}

#: Which attachment decides the status of the volume: the first match. An attached
#: host comes before any change in progress elsewhere.
ATTACHMENT_PRIORITY = (
    (AttachStatus.ATTACHED, VolumeStatus.IN_USE),
    (AttachStatus.ATTACHING, VolumeStatus.ATTACHING),
    (AttachStatus.DETACHING, VolumeStatus.DETACHING),
    (AttachStatus.RESERVED, VolumeStatus.RESERVED),
    # A failed detach may have left an access: the volume is not available.
    (AttachStatus.ERROR_DETACHING, VolumeStatus.DETACHING),
)


def volume_may_change(old: VolumeStatus, new: VolumeStatus) -> bool:
    """Whether the table has this change."""
    return any((old, new) == change[:2] for change in VOLUME_TRANSITIONS)


def snapshot_may_change(old: SnapshotStatus, new: SnapshotStatus) -> bool:
    """Whether the table has this change."""
    return any((old, new) == change[:2] for change in SNAPSHOT_TRANSITIONS)


_ATTACHMENT_CHANGES = frozenset(change[:2] for change in ATTACHMENT_TRANSITIONS)


def attachment_may_change(old: AttachStatus, new: AttachStatus) -> bool:
    """Whether the table has this change."""
    return (old, new) in _ATTACHMENT_CHANGES


def volume_status(
    own: VolumeStatus, attachments: Collection[AttachStatus]
) -> VolumeStatus:
    """Return the status that a client sees: its own one unless that is available."""
    if own is not VolumeStatus.AVAILABLE:
        return own
    for attach_status, status in ATTACHMENT_PRIORITY:
        if attach_status in attachments:
            return status
    return VolumeStatus.AVAILABLE
