# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold between two steps, and when nothing is in progress.

Written from the promises, not with the functions that the node decides with. The
statuses and their changes are those of lunshare.agent.model.states.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from lunshare.agent.model.states import (
    ENDING,
    OPEN_HANDOVER,
    POSSIBLE,
    WANTED,
    AttachStatus,
    HandoverStatus,
    attachment_may_change,
)
from lunshare.drivers.values import Mode
from tests.restart.node_states import Live, Row, Rows


def writers(live: Live) -> set[str]:
    """The initiators that can write."""
    return {initiator for initiator, mode in live.items() if mode is Mode.RW}


def check_moment(seen: Rows, live: Live) -> None:
    """Check what holds at any time.

    Access that a row has lost is closed a moment later. Until the row says that this is
    done, the row names it.
    """
    possible = [row for row in seen.rows if row.status in POSSIBLE]
    proven = [row for row in possible if row.is_closed and not row.former]
    may = {row.initiator for row in possible} | {row.former for row in possible}
    shut = {row.initiator for row in proven if row.fence == "all"}
    assert live.keys() <= may - shut, "access that no row has"
    may_write = {row.initiator for row in possible if row.mode == "rw"}
    may_write |= {row.former for row in possible}
    assert writers(live) <= may_write - {row.initiator for row in proven}, (
        "a host writes that no row lets write"
    )
    if seen.most_writers is not None:
        assert len(writers(live)) <= seen.most_writers, "too many writers"
    _check_handover(seen, live)


def _check_handover(seen: Rows, live: Live) -> None:
    state = seen.latest_handover
    if state.get("status") != HandoverStatus.PROMOTING:
        return
    left = {row.initiator for row in seen.rows if row.id in state["from"]}
    assert not left & writers(live), "who has handed over writes"


def check_change(before: Rows, after: Rows) -> None:
    """Check that each status changes as the table says."""
    old = {row.uuid: row.status for row in before.rows}
    for row in after.rows:
        was = old.get(row.uuid, row.status)
        assert was == row.status or attachment_may_change(
            AttachStatus(was), AttachStatus(row.status)
        ), f"no such change: {was} to {row.status}"


def wanted(rows: Iterable[Row]) -> Live:
    """The access that the rows ask for."""
    found: Live = {}
    fences: dict[str, set[str | None]] = {}
    for row in rows:
        if row.initiator and row.status in WANTED:
            fences.setdefault(row.initiator, set()).add(row.fence)
            if row.mode == "rw" or row.initiator not in found:
                found[row.initiator] = Mode(str(row.mode))
    for initiator, taken in fences.items():
        if "all" in taken:
            del found[initiator]
        elif "writes" in taken:
            found[initiator] = Mode.RO
    return found


def check_rest(seen: Rows, live: Live) -> None:
    """Check what holds when no client and no job is left."""
    assert live == wanted(seen.rows), "the target is not what the rows ask for"
    of_batches = [row for row in seen.rows if uuid.UUID(row.uuid).version == 8]
    assert len(of_batches) in (0, 2), "half of a batch"
    for row in seen.rows:
        assert row.told in (None, row.mode), f"{row.id} is {row.mode}, told {row.told}"


def check_whole(seen: Rows, live: Live) -> None:
    """Check what holds after a start: nothing is left to do."""
    check_rest(seen, live)
    for row in seen.rows:
        assert row.former is None, f"{row.id} still closes an access"
        assert row.status not in ENDING, f"{row.id} has not ended"
        assert bool(row.fence) == bool(row.is_closed), f"{row.id} is not closed"
        names = {name for name, _, _ in seen.fences}
        is_fenced = bool({row.host, row.initiator} & names)
        assert is_fenced == bool(row.fence), f"{row.id} and the fences of hosts differ"
    assert seen.latest_handover.get("status") not in OPEN_HANDOVER, "a handover is open"
    assert not seen.due, "a lease has ended, and its host may write"
