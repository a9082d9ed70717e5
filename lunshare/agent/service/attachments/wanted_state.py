# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From rows to the wanted access. Pure, and the only place that decides a mode.

The access that a target should have for a volume is a function of the volume's
attachments and of nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lunshare.agent.model.errors import Conflict, Invalid
from lunshare.agent.model.records import Attachment, Mode, Volume
from lunshare.agent.model.states import WANTED, FenceKind
from lunshare.drivers import chap_text
from lunshare.drivers.values import Auth, Connector

#: What a host is promoted to: by a change of mode, a handover, or as the next writer.
PROMOTED = Mode.RW


@dataclass(frozen=True, slots=True)
class Wanted:
    """The access that a target should have for one volume.

    ``only`` limits it to these initiators; None means all. ``widened`` says that
    the one initiator has attachments of both modes.
    """

    accesses: tuple[Connector, ...]
    only: frozenset[str] | None = None
    widened: bool = False


def of_volume(rows: Iterable[Attachment]) -> Wanted:
    """Return the complete wanted access of a volume."""
    return Wanted(list_accesses(rows))


def of_initiator(
    initiator: str, rows: Sequence[Attachment], others: Callable[[], bool]
) -> Wanted:
    """Return the wanted access of one initiator, whose rows these are, oldest first.

    When the last access of a volume closes, the complete export is removed.
    ``others`` returns whether the volume has any other wanted access. It is asked
    only where this initiator has none.
    """
    accesses = list_accesses(rows)
    if not accesses and not others():
        return Wanted(())
    return Wanted(accesses, frozenset({initiator}), widened=_are_mixed(rows))


def of_initiators(parts: Mapping[str, Wanted]) -> Wanted:
    """Return the wanted access of several initiators, each with what it wants alone.

    Where the last access of the volume closes, that of one says so for all.
    """
    accesses = tuple(access for part in parts.values() for access in part.accesses)
    if not accesses and any(part.only is None for part in parts.values()):
        return Wanted(())
    return Wanted(accesses, frozenset(parts))


def list_accesses(rows: Iterable[Attachment]) -> tuple[Connector, ...]:
    """Return every access that the target should have, one for each initiator."""
    by_initiator: dict[str, list[Attachment]] = {}
    for row in rows:
        if row.initiator and row.status in WANTED:
            by_initiator.setdefault(row.initiator, []).append(row)
    return tuple(
        _access(same)
        for same in by_initiator.values()
        if all(row.fence is not FenceKind.ALL for row in same)
    )


def _widest(rows: Sequence[Attachment]) -> Mode:
    """Return the mode of an initiator that has these attachments.

    It has one ACL and one write-protect bit, so it may write if one of them allows it.
    Both modes are possible only where the operator allowed it (mixed_modes_per_host).
    """
    if any(row.fence is not None for row in rows):
        return Mode.RO
    return Mode.RW if any(row.mode == Mode.RW for row in rows) else Mode.RO


def _are_mixed(rows: Iterable[Attachment]) -> bool:
    """Whether an initiator has wanted attachments of both modes."""
    return len({row.mode for row in rows if row.status in WANTED}) > 1


def _access(rows: Sequence[Attachment]) -> Connector:
    oldest = rows[0]
    return Connector(
        initiator=str(oldest.initiator),
        mode=_widest(rows),
        attachment_id=oldest.id,
        auth=Auth(str(oldest.auth_username), str(oldest.auth_password)),
    )


def parse_mode(text: object, field: str) -> Mode | None:
    """Return the mode that a client sent in a field, None where it sent none.

    :raises Invalid: it is neither ro nor rw.
    """
    if text is None:
        return None
    if text in (Mode.RO, Mode.RW):
        return Mode(str(text))
    raise Invalid(f"{field} must be ro or rw")


def choose_mode(volume: Volume, *requests: Mode | None) -> Mode | None:
    """Return the mode of a reservation, None where its connector will decide.

    It is ro where the volume is readonly, else the first request that names one.
    """
    if volume.readonly:
        return Mode.RO
    return next((mode for mode in requests if mode is not None), None)


def choose_open_mode(volume: Volume, *requests: Mode | None) -> Mode:
    """Return the mode of an attachment that is opened: the same, and else rw."""
    return choose_mode(volume, *requests) or Mode.RW


def lower_mode(mode: Mode, why: Callable[[], Conflict | None], *, asked: bool) -> Mode:
    """Return what a writers policy leaves of a mode.

    ``why`` returns why the host may not write, None if it may; only rw asks for it.
    ``asked``: a client has named the mode for this row; else it is a default.

    :raises Conflict: it is rw, has been asked for, and may not be.
    """
    refusal = why() if mode is Mode.RW else None
    if refusal is not None and asked:
        raise refusal
    return Mode.RO if refusal else mode


def check_writable(volume: Volume, request: Mode | None) -> None:
    """Check that os-attach does not ask for rw where the volume is readonly.

    :raises Invalid: it does.
    """
    if volume.readonly and request is Mode.RW:
        raise Invalid(
            f"os-attach.mode: volume {volume.id} is readonly; give ro, or leave it out."
        )


def find_other_mode(
    rows: Iterable[Attachment], row_id: str, mode: Mode
) -> Attachment | None:
    """Return another wanted attachment of the initiator with the other mode, if any."""
    for row in rows:
        if row.id != row_id and row.status in WANTED and row.mode != mode:
            return row
    return None


def credentials(rows: Iterable[Attachment]) -> tuple[str, str]:
    """Return CHAP user and secret of an initiator: its existing ones, else new."""
    for row in rows:
        if row.auth_username and row.auth_password:
            return row.auth_username, row.auth_password
    return _random(chap_text.USERNAME_LENGTH), _random(chap_text.SECRET_LENGTH)


def _random(length: int) -> str:
    return chap_text.text(secrets.randbelow(chap_text.count(length)), length)
