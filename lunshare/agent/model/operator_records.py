# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of the node: accesses of hosts, orphans, wipes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from lunshare.agent.model.lease_records import LeaseState
from lunshare.drivers.drifts import Drift


@dataclass(frozen=True, slots=True)
class HostAccess:
    """One host's access to one volume: what the rows ask for, what the target has.

    ``attachment_id`` is None for an access that no attachment asks for. ``allowed``
    is the mode that the target enforces, None where the host has no access.
    ``sessions`` is None where the target could not be read, or cannot tell which host
    has how many; ``addresses`` where it could not be read. ``refused_mib``: as in
    lunshare.drivers.values.LiveConnector.
    ``reservation_keys``: those of SCSI reservations, one for each port that has one;
    ``reservation``: SPC's name of the one that the host holds, or None.
    ``fence`` is "fenced" or "fence pending", ``verified_at`` when its target was last
    compared as a whole and found right. ``problem`` says in one
    sentence how the two disagree, or is empty.
    """

    volume_id: str
    volume_name: str | None
    backend: str
    initiator: str
    host: str | None = None
    attachment_id: str | None = None
    mode: str | None = None
    status: str | None = None
    allowed: str | None = None
    sessions: int | None = None
    addresses: tuple[str, ...] | None = ()
    refused_mib: int | None = None
    reservation_keys: tuple[str, ...] = ()
    reservation: str | None = None
    fence: str | None = None
    verified_at: datetime | None = None
    problem: str = ""
    lease: LeaseState | None = None

    @property
    def marker(self) -> str:
        """The volume, and the attachment or, without one, the initiator."""
        return f"{self.volume_id},{self.attachment_id or self.initiator}"


class Verdict(enum.StrEnum):
    """What a comparison of a target with the rows has ended with."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    DRIFT = "drift"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Verification:
    """One volume's target, compared with the rows at ``at``.

    ``drift`` is what was found, ``remaining`` what a repair has left of it. ``problem``
    is why the target could not be compared or repaired, or "".
    """

    volume_id: str
    at: datetime
    drift: tuple[Drift, ...] = ()
    remaining: tuple[Drift, ...] = ()
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """What it has ended with."""
        if self.remaining:
            return Verdict.DRIFT
        if self.problem:
            return Verdict.UNVERIFIED
        return Verdict.REPAIRED if self.drift else Verdict.CLEAN


@dataclass(frozen=True, slots=True)
class Encryption:
    """How hosts would encrypt the volumes of a type; ``key_size`` is in bits."""

    volume_type_id: str
    encryption_id: str
    provider: str
    control_location: str
    cipher: str | None
    key_size: int | None
    created_at: datetime
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something on a backend that lunshare created and that has no row.

    ``kind`` is export, disk or snapshot; ``where`` is its name for an operator. A
    second disk of a volume has no row either: the row is that of the other disk.
    """

    kind: str
    id: str
    backend: str
    where: str

    def __str__(self) -> str:
        return f"{self.where} has no row"


@dataclass(frozen=True, slots=True)
class RecoverRequest:
    """A checked request to create the row of an orphaned disk."""

    volume_id: str
    name: str | None = None
    volume_type: str | None = None


@dataclass(frozen=True, slots=True)
class WipeState:
    """A deleted disk that is still being wiped: its bytes, and how many are left."""

    backend: str
    name: str
    size: int
    left: int

    @property
    def percent(self) -> int:
        """How many percent are wiped; 100 only when nothing is left."""
        return (self.size - self.left) * 100 // self.size if self.size else 0
