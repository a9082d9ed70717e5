# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every status word, and every allowed way from one to the next.

The words are those of the Block Storage API. A volume's row holds only its
own status; what a client sees is derived from it and from its attachments by
``volume_status``, so the two can never disagree.
"""

from __future__ import annotations

import enum
from collections.abc import Collection


class VolumeStatus(enum.StrEnum):
    """What a volume's row can say, then what only derivation can say."""

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
    # Derived from attachments, never stored.
    RESERVED = "reserved"
    ATTACHING = "attaching"
    DETACHING = "detaching"
    IN_USE = "in-use"


class AttachStatus(enum.StrEnum):
    """What an attachment's row can say."""

    RESERVED = "reserved"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DETACHED = "detached"
    ERROR_ATTACHING = "error_attaching"
    ERROR_DETACHING = "error_detaching"


class SnapshotStatus(enum.StrEnum):
    """What a snapshot's row can say."""

    CREATING = "creating"
    AVAILABLE = "available"
    ERROR = "error"
    DELETING = "deleting"
    ERROR_DELETING = "error_deleting"


#: from, to, and when it happens. Any other move is a bug and is refused.
VOLUME_TRANSITIONS: tuple[tuple[VolumeStatus, VolumeStatus, str], ...] = (
    (VolumeStatus.CREATING, VolumeStatus.AVAILABLE, "the disk is made"),
    (VolumeStatus.CREATING, VolumeStatus.ERROR, "the disk could not be made"),
    (VolumeStatus.CREATING, VolumeStatus.DELETING, "a stuck creation is given up"),
    (VolumeStatus.AVAILABLE, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR_DELETING, VolumeStatus.DELETING, "a delete is tried again"),
    (VolumeStatus.DELETING, VolumeStatus.ERROR_DELETING, "the disk stayed"),
    (VolumeStatus.AVAILABLE, VolumeStatus.EXTENDING, "an extend is accepted"),
    (VolumeStatus.EXTENDING, VolumeStatus.AVAILABLE, "it has grown, or could not"),
    (VolumeStatus.EXTENDING, VolumeStatus.ERROR_EXTENDING, "it may have grown"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.EXTENDING, "the extend is tried again"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.AVAILABLE, VolumeStatus.REVERTING, "a revert is accepted"),
    (VolumeStatus.REVERTING, VolumeStatus.AVAILABLE, "it is done, or was refused"),
    (VolumeStatus.REVERTING, VolumeStatus.ERROR, "which bytes it has is not known"),
    (VolumeStatus.ERROR, VolumeStatus.REVERTING, "a failed revert is tried again"),
    (VolumeStatus.MANAGING, VolumeStatus.AVAILABLE, "somebody's disk is ours"),
    (VolumeStatus.MANAGING, VolumeStatus.ERROR_MANAGING, "it could not be taken"),
    (VolumeStatus.MANAGING, VolumeStatus.DELETING, "its volume is not to be had"),
    (VolumeStatus.ERROR_MANAGING, VolumeStatus.DELETING, "a delete gives it back"),
    (VolumeStatus.AVAILABLE, VolumeStatus.UNMANAGING, "the disk is given away"),
    (VolumeStatus.UNMANAGING, VolumeStatus.AVAILABLE, "that was refused"),
    (VolumeStatus.UNMANAGING, VolumeStatus.ERROR_UNMANAGING, "it is still ours"),
    (VolumeStatus.ERROR_UNMANAGING, VolumeStatus.UNMANAGING, "it is tried again"),
    (VolumeStatus.ERROR_UNMANAGING, VolumeStatus.AVAILABLE, "it is reset"),
    (VolumeStatus.ERROR_EXTENDING, VolumeStatus.AVAILABLE, "it is reset"),
    (VolumeStatus.ERROR, VolumeStatus.AVAILABLE, "a failed revert is reset"),
    (VolumeStatus.AVAILABLE, VolumeStatus.AVAILABLE, "it is of another type"),
    (VolumeStatus.AVAILABLE, VolumeStatus.RETYPING, "a retype has to move it"),
    (VolumeStatus.RETYPING, VolumeStatus.AVAILABLE, "it is moved, or could not be"),
    (VolumeStatus.AVAILABLE, VolumeStatus.MAINTENANCE, "a migration is accepted"),
    (VolumeStatus.MAINTENANCE, VolumeStatus.AVAILABLE, "it is moved, or could not be"),
)

SNAPSHOT_TRANSITIONS: tuple[tuple[SnapshotStatus, SnapshotStatus, str], ...] = (
    (SnapshotStatus.CREATING, SnapshotStatus.AVAILABLE, "the bytes are kept"),
    (SnapshotStatus.CREATING, SnapshotStatus.ERROR, "the bytes could not be kept"),
    (SnapshotStatus.CREATING, SnapshotStatus.DELETING, "its volume is not to be had"),
    (SnapshotStatus.AVAILABLE, SnapshotStatus.DELETING, "a delete is accepted"),
    (SnapshotStatus.ERROR, SnapshotStatus.DELETING, "a delete is accepted"),
    (SnapshotStatus.ERROR_DELETING, SnapshotStatus.DELETING, "it is tried again"),
    (SnapshotStatus.DELETING, SnapshotStatus.ERROR_DELETING, "it stayed"),
)

ATTACHMENT_TRANSITIONS: tuple[tuple[AttachStatus, AttachStatus, str], ...] = (
    (AttachStatus.RESERVED, AttachStatus.ATTACHING, "a connector is given"),
    (AttachStatus.RESERVED, AttachStatus.ATTACHED, "completed with no connector"),
    (AttachStatus.ATTACHING, AttachStatus.ATTACHING, "another connector is given"),
    (AttachStatus.ATTACHING, AttachStatus.ATTACHED, "the host says it is ready"),
    (AttachStatus.ATTACHING, AttachStatus.ERROR_ATTACHING, "the target refused"),
    (AttachStatus.ATTACHED, AttachStatus.ATTACHING, "another connector is given"),
    (AttachStatus.ATTACHED, AttachStatus.ATTACHED, "completed twice"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.ATTACHING, "connect is tried again"),
    (AttachStatus.RESERVED, AttachStatus.DETACHED, "given up before it was connected"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.DETACHED, "nothing stayed open"),
    (AttachStatus.ATTACHING, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ATTACHED, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ERROR_ATTACHING, AttachStatus.DETACHING, "a detach is accepted"),
    (AttachStatus.ERROR_DETACHING, AttachStatus.DETACHING, "a detach is tried again"),
    (AttachStatus.DETACHING, AttachStatus.DETACHING, "a detach is tried again"),
    (AttachStatus.DETACHING, AttachStatus.DETACHED, "the access is closed"),
    (AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING, "the access may be open"),
    (AttachStatus.ERROR_DETACHING, AttachStatus.DETACHED, "a forced detach finds none"),
)

#: A snapshot may be deleted in these.
DELETABLE_SNAPSHOT = frozenset(
    {SnapshotStatus.AVAILABLE, SnapshotStatus.ERROR, SnapshotStatus.ERROR_DELETING}
)

#: An operator may reset these to available, when the disk is there.
RESETTABLE = frozenset(
    {
        VolumeStatus.ERROR,
        VolumeStatus.ERROR_EXTENDING,
        VolumeStatus.ERROR_UNMANAGING,
    }
)

#: The row's backend has a whole disk for a volume in one of these.
HAS_DISK = frozenset(
    {
        VolumeStatus.AVAILABLE,
        VolumeStatus.EXTENDING,
        VolumeStatus.ERROR_EXTENDING,
        VolumeStatus.RETYPING,
        VolumeStatus.MAINTENANCE,
    }
)

#: Work that has failed, and is tried again, less and less often.
FAILED = frozenset(
    {
        VolumeStatus.ERROR_DELETING,
        VolumeStatus.ERROR_UNMANAGING,
        SnapshotStatus.ERROR_DELETING,
    }
)

#: Work under way, which the next reconcile goes on with.
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

#: The target shall have an access for an attachment in one of these.
WANTED = frozenset({AttachStatus.ATTACHING, AttachStatus.ATTACHED})

#: The target may have an access for an attachment in one of these.
POSSIBLE = WANTED | {
    AttachStatus.DETACHING,
    AttachStatus.ERROR_ATTACHING,
    AttachStatus.ERROR_DETACHING,
}

#: Which attachment speaks for the volume, first found wins. An attached host
#: outranks any change under way elsewhere.
ATTACHMENT_PRIORITY = (
    (AttachStatus.ATTACHED, VolumeStatus.IN_USE),
    (AttachStatus.ATTACHING, VolumeStatus.ATTACHING),
    (AttachStatus.DETACHING, VolumeStatus.DETACHING),
    (AttachStatus.RESERVED, VolumeStatus.RESERVED),
    # A detach that failed may have left an access: the volume is not free.
    (AttachStatus.ERROR_DETACHING, VolumeStatus.DETACHING),
)


def volume_may_change(old: VolumeStatus, new: VolumeStatus) -> bool:
    """Whether the table has this move."""
    return any((old, new) == move[:2] for move in VOLUME_TRANSITIONS)


def snapshot_may_change(old: SnapshotStatus, new: SnapshotStatus) -> bool:
    """Whether the table has this move."""
    return any((old, new) == move[:2] for move in SNAPSHOT_TRANSITIONS)


def attachment_may_change(old: AttachStatus, new: AttachStatus) -> bool:
    """Whether the table has this move."""
    return any((old, new) == move[:2] for move in ATTACHMENT_TRANSITIONS)


def volume_status(
    own: VolumeStatus, attachments: Collection[AttachStatus]
) -> VolumeStatus:
    """What a client is told: the volume's own trouble first, then its attachments."""
    if own is not VolumeStatus.AVAILABLE:
        return own
    for attached, seen in ATTACHMENT_PRIORITY:
        if attached in attachments:
            return seen
    return VolumeStatus.AVAILABLE


def _page() -> str:
    """docs/states.md, drawn from the tables above (``make states``)."""
    parts = ["# States\n\nDrawn from `agent/states.py` by `make states`.\n"]
    for title, moves in (
        ("Volume", VOLUME_TRANSITIONS),
        ("Snapshot", SNAPSHOT_TRANSITIONS),
        ("Attachment", ATTACHMENT_TRANSITIONS),
    ):
        parts.append(f"\n## {title}\n\n```mermaid\nstateDiagram-v2\n")
        parts += [f"    {old} --> {new}: {why}\n" for old, new, why in moves]
        parts.append("```\n\n| from | to | when |\n|---|---|---|\n")
        parts += [f"| {old} | {new} | {why} |\n" for old, new, why in moves]
    parts.append(
        "\n## What a client is told of a volume\n\nIts own status unless that is"
        " `available`; then the first of these that one of its attachments has:\n\n"
        "| attachment | volume |\n|---|---|\n"
    )
    parts += [f"| {old} | {seen} |\n" for old, seen in ATTACHMENT_PRIORITY]
    return "".join(parts)


if __name__ == "__main__":
    print(_page(), end="")
