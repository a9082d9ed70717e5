# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which mode an attachment gets, and which mode its host has. No other file decides.

Pure functions. The rows have the mode of each attachment; the target gets the mode of
each initiator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import Attachment, Mode, Volume
from lunshare.agent.model.states import WANTED


def parse(text: object, field: str) -> Mode | None:
    """Return the mode that a client sent in a field, None where it sent none.

    :raises Invalid: it is neither ro nor rw.
    """
    if text is None:
        return None
    if text in (Mode.RO, Mode.RW):
        return Mode(str(text))
    raise Invalid(f"{field} must be ro or rw")


def choose(volume: Volume, *requests: Mode | None) -> Mode | None:
    """Return the mode of a reservation, None where its connector will decide.

    It is ro where the volume is readonly, else the first request that names one.
    """
    if volume.readonly:
        return Mode.RO
    return next((mode for mode in requests if mode is not None), None)


def choose_open(volume: Volume, *requests: Mode | None) -> Mode:
    """Return the mode of an attachment that is opened: as ``choose``, at the end rw."""
    return choose(volume, *requests) or Mode.RW


def check_writable(volume: Volume, request: Mode | None) -> None:
    """Check that os-attach does not ask for rw where the volume is readonly.

    :raises Invalid: it does.
    """
    if volume.readonly and request is Mode.RW:
        raise Invalid(
            f"os-attach.mode: volume {volume.id} is readonly; give ro, or leave it out."
        )


def find_other(
    rows: Iterable[Attachment], row_id: str, mode: Mode
) -> Attachment | None:
    """Return another wanted attachment of the initiator with the other mode, if any."""
    for row in rows:
        if row.id != row_id and row.status in WANTED and row.mode != mode:
            return row
    return None


def widest(rows: Sequence[Attachment]) -> Mode:
    """Return the mode of an initiator that has these attachments.

    It has one ACL and one write-protect bit, so it may write if one of them allows it.
    Both modes are possible only where the operator allowed it (mixed_modes_per_host).
    """
    return Mode.RW if any(row.mode == Mode.RW for row in rows) else Mode.RO


def are_mixed(rows: Iterable[Attachment]) -> bool:
    """Whether an initiator has wanted attachments of both modes."""
    return len({row.mode for row in rows if row.status in WANTED}) > 1
