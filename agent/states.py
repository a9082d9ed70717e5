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


#: from, to, and when it happens. Any other move is a bug and is refused.
VOLUME_MOVES: tuple[tuple[VolumeStatus, VolumeStatus, str], ...] = (
    (VolumeStatus.CREATING, VolumeStatus.AVAILABLE, "the disk is made"),
    (VolumeStatus.CREATING, VolumeStatus.ERROR, "the disk could not be made"),
    (VolumeStatus.CREATING, VolumeStatus.DELETING, "a stuck creation is given up"),
    (VolumeStatus.AVAILABLE, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR, VolumeStatus.DELETING, "a delete is accepted"),
    (VolumeStatus.ERROR_DELETING, VolumeStatus.DELETING, "a delete is tried again"),
    (VolumeStatus.DELETING, VolumeStatus.ERROR_DELETING, "the disk stayed"),
)

ATTACHMENT_MOVES: tuple[tuple[AttachStatus, AttachStatus, str], ...] = (
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


def may_move_volume(old: VolumeStatus, new: VolumeStatus) -> bool:
    """Whether the table has this move."""
    return any((old, new) == move[:2] for move in VOLUME_MOVES)


def may_move_attachment(old: AttachStatus, new: AttachStatus) -> bool:
    """Whether the table has this move."""
    return any((old, new) == move[:2] for move in ATTACHMENT_MOVES)


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
    for title, moves in (("Volume", VOLUME_MOVES), ("Attachment", ATTACHMENT_MOVES)):
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
