# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a row says of the lease of its write access, and when it has ended.

A lease counts in seconds since the boot of the node, so no clock that is set, and no
suspended node, makes it longer. One of another boot has ended: how old it is, nobody
knows. Pure, but for this clock.
"""

from __future__ import annotations

from typing import Any

from lunshare.agent import boot_clock
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.lease_records import NEXT, LeaseState, NewLease
from lunshare.agent.model.records import Attachment, Mode
from lunshare.agent.model.states import WANTED


def begun(new: NewLease) -> dict[str, Any]:
    """Return what a row has of a lease that begins now."""
    then = NEXT if new.then_next else None
    lease = {"ttl": new.ttl, "then": then, "boot": boot_clock.boot_id()}
    return {"lease": lease, "lease_ends": boot_clock.seconds() + new.ttl}


def ended(row: Attachment) -> dict[str, Any]:
    """Return what a row has of its lease when its host may not write any more."""
    if row.lease is None or row.lease_ends is None:
        return {}
    return {"lease": {**row.lease, "ended_at": now().isoformat()}, "lease_ends": None}


def is_due(row: Attachment) -> bool:
    """Whether its lease has ended, and the row does not say so yet."""
    if row.lease is None or row.lease_ends is None:
        return False
    is_of_this_boot = row.lease["boot"] == boot_clock.boot_id()
    return not is_of_this_boot or boot_clock.seconds() >= row.lease_ends


def state(row: Attachment) -> LeaseState | None:
    """Return how the latest lease of an attachment stands, None if it had none."""
    if row.lease is None:
        return None
    is_running = _is_running(row)
    seconds = (row.lease_ends or 0.0) - boot_clock.seconds() if is_running else 0.0
    return LeaseState(
        row.lease["ttl"],
        row.lease["then"],
        "running" if is_running else _how_ended(row),
        round(max(0.0, seconds), 3),
        row.lease.get("ended_at"),
    )


def _is_running(row: Attachment) -> bool:
    may_write = row.mode is not Mode.RO and row.status in WANTED
    return row.lease_ends is not None and may_write and not is_due(row)


def _how_ended(row: Attachment) -> str:
    is_open = row.lease_ends is not None or row.former_initiator is not None
    return "fence pending" if is_open else "ended"
