# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From rows to the wanted access. Pure; the mode of an initiator is from ``modes``.

The access that a target should have for a volume is a function of the volume's
attachments and of nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lunshare.agent.model.records import Attachment
from lunshare.agent.model.states import WANTED
from lunshare.agent.service.attachments import modes
from lunshare.drivers import chap_text
from lunshare.drivers.values import Auth, Connector


@dataclass(frozen=True, slots=True)
class Wanted:
    """The access that a target should have for one volume.

    ``only`` limits it to these initiators; None means all. ``widened`` says that
    the one initiator has attachments of both modes.
    """

    connectors: tuple[Connector, ...]
    only: frozenset[str] | None = None
    widened: bool = False


def of_volume(rows: Iterable[Attachment]) -> Wanted:
    """Return the complete wanted access of a volume."""
    return Wanted(connectors(rows))


def of_initiator(
    initiator: str, rows: Sequence[Attachment], others: Callable[[], bool]
) -> Wanted:
    """Return the wanted access of one initiator, whose rows these are, oldest first.

    When the last access of a volume closes, the complete export is removed.
    ``others`` returns whether the volume has any other wanted access. It is asked
    only where this initiator has none.
    """
    wanted = connectors(rows)
    if not wanted and not others():
        return Wanted(())
    return Wanted(wanted, frozenset({initiator}), widened=modes.are_mixed(rows))


def connectors(rows: Iterable[Attachment]) -> tuple[Connector, ...]:
    """Return every access that the target should have, one for each initiator."""
    by_initiator: dict[str, list[Attachment]] = {}
    for row in rows:
        if row.initiator and row.status in WANTED:
            by_initiator.setdefault(row.initiator, []).append(row)
    return tuple(_connector(same) for same in by_initiator.values())


def _connector(rows: Sequence[Attachment]) -> Connector:
    oldest = rows[0]
    return Connector(
        initiator=str(oldest.initiator),
        mode=modes.widest(rows),
        attachment_id=oldest.id,
        auth=Auth(str(oldest.auth_username), str(oldest.auth_password)),
    )


def credentials(rows: Iterable[Attachment]) -> tuple[str, str]:
    """Return CHAP user and secret of an initiator: its existing ones, else new."""
    for row in rows:
        if row.auth_username and row.auth_password:
            return row.auth_username, row.auth_password
    return _random(chap_text.USERNAME_LENGTH), _random(chap_text.SECRET_LENGTH)


def _random(length: int) -> str:
    return chap_text.text(secrets.randbelow(chap_text.count(length)), length)
