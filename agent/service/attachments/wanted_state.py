# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From rows to the wanted access: pure, and the only place that decides a mode.

What the target shall have for a volume is a function of the volume's
attachments and of nothing else.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Sequence

from lunshare.agent.records import Attachment
from lunshare.agent.states import WANTED
from lunshare.drivers.values import Auth, Connector, Mode

# In iSCSI's text a value that begins with 0x or 0b is a number, hex or base64 (RFC 7143
# section 6.1), and LIO takes a CHAP_N that begins so for one (extract_param in
# drivers/target/iscsi/iscsi_target_nego.c, 6.1): nobody can log in by such a name.
_FIRST = string.ascii_letters
_ALPHABET = _FIRST + string.digits
# RFC 7143 section 9.2.1 wants at least 96 random bits in a CHAP secret, and
# Windows takes no more than 16 characters: 16 of these are 95 bits.
_SECRET_LENGTH = 16
_USERNAME_LENGTH = 20


def connectors(rows: Iterable[Attachment]) -> tuple[Connector, ...]:
    """Every access the target shall have, one for each initiator."""
    by_initiator: dict[str, list[Attachment]] = {}
    for row in rows:
        if row.initiator and row.status in WANTED:
            by_initiator.setdefault(row.initiator, []).append(row)
    return tuple(_connector(same) for same in by_initiator.values())


def connector(rows: Iterable[Attachment]) -> Connector | None:
    """The access that one initiator's rows, oldest first, ask for; None is closed."""
    found = connectors(rows)
    return found[0] if found else None


def _connector(rows: Sequence[Attachment]) -> Connector:
    # One initiator has one ACL and one write-protect bit: the widest mode of
    # its attachments. Two modes get here only if the operator allowed it.
    oldest = rows[0]
    writes = any(row.mode == Mode.RW for row in rows)
    return Connector(
        initiator=str(oldest.initiator),
        mode=Mode.RW if writes else Mode.RO,
        attachment_id=oldest.id,
        auth=Auth(str(oldest.auth_username), str(oldest.auth_password)),
    )


def credentials(rows: Iterable[Attachment]) -> tuple[str, str]:
    """CHAP user and secret for an initiator: those it has already, else new ones."""
    for row in rows:
        if row.auth_username and row.auth_password:
            return row.auth_username, row.auth_password
    return _random(_USERNAME_LENGTH), _random(_SECRET_LENGTH)


def _random(length: int) -> str:
    rest = (secrets.choice(_ALPHABET) for _ in range(length - 1))
    return secrets.choice(_FIRST) + "".join(rest)
