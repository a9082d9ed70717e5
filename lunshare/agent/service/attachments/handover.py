# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hand the write access of a volume from its writers to another host.

The intent is committed first, with the loss of write access: who leaves, who follows.
The follower gets its access in the transaction that sees that nobody who leaves may
write any more. So a kill at any step leaves at most one writer, and the next start or
reconcile goes on where the row says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oslo_log import log

from lunshare.agent.db import attachments, volumes, write_fences
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict
from lunshare.agent.model.records import Attachment, Mode, RequestContext, Volume
from lunshare.agent.model.states import ENDING, AttachStatus, HandoverStatus
from lunshare.agent.service.attachments import refusals
from lunshare.agent.service.attachments.access import Access, available_volume
from lunshare.agent.service.attachments.mode_change import ModeChanges
from lunshare.agent.service.instance_gate import Check, InstanceGate
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NewHandover:
    """From one writer, or from all (None), to an attachment.

    ``force``: the access of who leaves is removed, not only its writing.
    """

    volume_id: str
    to: str
    source: str | None = None
    force: bool = False


class Handovers:
    """Hands over, and finishes what was interrupted."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        *,
        changes: ModeChanges,
        gate: InstanceGate,
    ) -> None:
        self._db, self._access, self._locks = db, access, locks
        self._changes, self._gate = changes, gate

    def show(self, ctx: RequestContext, volume_id: str) -> State:
        """Return the fencing generation of a volume, and its latest handover.

        :raises NotFound: the volume.
        """
        with self._db.reading() as connection:
            volumes.require(connection, volume_id, ctx)
            return _shown(connection, volume_id)

    def hand_over(self, ctx: RequestContext, new: NewHandover) -> State:
        """Demote the writers, then promote the other host; return how it stands.

        Where a write hangs, nobody is promoted and it is pending: each reconcile goes
        on, and so does the same request.

        :raises NotFound: the volume, or it has no such attachment.
        :raises Conflict: another handover is pending, there is nothing to hand over, or
            a mode cannot be changed as ``ModeChanges.change`` says.
        :raises BackendFailed: the follower could not be let in. Nobody may write.
        """
        checks = self._gate_checks(ctx, new)
        with self._locks.volume(new.volume_id, "a handover"):
            with self._db.writing() as connection:
                self._start(connection, ctx, new, checks)
            self.finish(new.volume_id)
            return self.show(ctx, new.volume_id)

    def finish(self, volume_id: str) -> None:
        """Go on with the handover of a volume, if any. The caller has its lock.

        :raises BackendFailed: the follower could not be let in.
        """
        with self._db.reading() as connection:
            state = write_fences.handover(connection, volume_id)
            if state is None or not write_fences.is_open(state):
                return
            rows = attachments.writers(connection, volume_id)
        if self._fence(volume_id, state, rows):
            self._promote(volume_id)

    def _gate_checks(self, ctx: RequestContext, new: NewHandover) -> dict[str, Check]:
        """Ask Nova about the attachments that a forced handover deletes."""
        if not new.force:
            return {}
        with self._db.reading() as connection:
            volumes.require(connection, new.volume_id, ctx)
            rows = attachments.writers(connection, new.volume_id)
        leaving = [row for row in rows if _leaves(row, new)]
        return {row.id: self._gate.check_detach(ctx, row) for row in leaving}

    def _start(
        self,
        connection: Connection,
        ctx: RequestContext,
        new: NewHandover,
        checks: Mapping[str, Check],
    ) -> None:
        """Write who leaves and who follows."""
        volume = volumes.require(connection, new.volume_id, ctx)
        former = write_fences.handover(connection, new.volume_id)
        asked = {"to": new.to, "source": new.source, "force": new.force}
        if former is not None and write_fences.is_open(former):
            if asked.items() <= former.items():
                return  # the same request: it goes on
            raise refusals.handover_pending(new.volume_id)
        named = [new.to, *filter(None, [new.source])]
        follower, *_ = attachments.require_all(connection, named, new.volume_id)
        rows = attachments.writers(connection, new.volume_id)
        leaving = [row for row in rows if _leaves(row, new)]
        ids = [row.id for row in leaving]
        _check(new, follower, leaving)
        _check_initiators(leaving, [r for r in (*rows, follower) if r.id not in ids])
        self._changes.check_promotion(connection, follower, ids)
        for row in leaving:
            self._access.check_support(volume, Mode.RO, row.initiators[0])
            if row.status not in ENDING:
                self._start_leaving(connection, row, ids, checks if new.force else None)
        _write_intent(connection, new.volume_id, asked, ids)

    def _start_leaving(
        self,
        connection: Connection,
        row: Attachment,
        leaving: list[str],
        checks: Mapping[str, Check] | None,
    ) -> None:
        if checks is None:
            self._changes.start_fence(connection, row, leaving)
            return
        if row.id not in checks:
            raise refusals.changed_meanwhile(row.volume_id)
        checks[row.id](row)
        attachments.change_status(
            connection, row.id, {row.status}, AttachStatus.DETACHING
        )

    def _fence(self, volume_id: str, state: State, rows: list[Attachment]) -> bool:
        """Wait for the writes of who leaves; False: they may still land.

        A host whose write hangs keeps no other one from being fenced.
        """
        reasons = []
        for row in rows:
            if row.id in state["pending"]:
                try:
                    self._end_writing(row)
                except BackendFailed as error:
                    reasons.append(str(error))
        if reasons:
            with self._db.writing() as connection:
                changed = {**state, "reason": reasons[0]}
                write_fences.write_handover(connection, volume_id, changed)
        return not reasons

    def _end_writing(self, row: Attachment) -> None:
        """:raises BackendFailed: its writes may still land."""
        if row.status in ENDING:
            self._access.delete(row.id)
        else:
            self._access.detach_replaced(row)

    def _promote(self, volume_id: str) -> None:
        """Commit that the follower may write, let it, and commit that it is done."""
        with self._db.writing() as connection:
            state = write_fences.handover(connection, volume_id) or {}
            rows = attachments.writers(connection, volume_id)
            if any(row.id in state["pending"] for row in rows):
                return
            is_new = state["status"] == HandoverStatus.PENDING
            promoted = self._start_promotion(connection, volume_id, state)
        if promoted is None:
            return
        volume, row, wrote = promoted
        if is_new and wrote:  # after a fence it may not be open yet
            self._access.apply(volume, row.initiator)
        else:
            self._changes.open(
                volume, row, lambda c, error: _end(c, volume_id, state, error)
            )
        state |= {"status": HandoverStatus.DONE, "promoted_at": now().isoformat()}
        with self._db.writing() as connection:
            write_fences.write_handover(connection, volume_id, state)
        LOG.info(
            "[%s] write access handed over: volume=%s to=%s generation=%s",
            row.attached_host,
            volume_id,
            row.id,
            state["generation"],
        )

    def _start_promotion(
        self, connection: Connection, volume_id: str, state: State
    ) -> tuple[Volume, Attachment, bool] | None:
        """Write that the follower may write; return whether it could before.

        None: it may not, or has to wait for an operation of the volume, which the state
        says then.
        """
        state |= {"status": HandoverStatus.PROMOTING, "pending": [], "reason": None}
        state.setdefault("fenced_at", now().isoformat())
        follower = attachments.require(connection, state["to"])
        try:
            available_volume(connection, follower)
        except Conflict as error:
            state["reason"] = str(error)
            write_fences.write_handover(connection, volume_id, state)
            return None
        try:
            volume, row = self._changes.start_promotion(connection, follower)
        except AgentError as error:
            _end(connection, volume_id, state, error)
            return None
        write_fences.write_handover(connection, volume_id, state)
        return volume, row, follower.writes


def begin(connection: Connection, volume_id: str, to: str, leaving: list[str]) -> None:
    """Write that ``to`` follows others that have become ro; the caller commits.

    No other handover of the volume may be pending.
    """
    request = {"to": to, "source": None, "force": False}
    _write_intent(connection, volume_id, request, leaving)


def _write_intent(
    connection: Connection, volume_id: str, request: State, leaving: list[str]
) -> None:
    state = {
        **request,
        "status": HandoverStatus.PENDING,
        "from": leaving,
        "pending": leaving,
        "generation": write_fences.generation(connection, volume_id),
        "started_at": now().isoformat(),
    }
    write_fences.write_handover(connection, volume_id, state)


def _end(
    connection: Connection, volume_id: str, state: State, error: Exception
) -> None:
    """Write that nobody follows."""
    ended = write_fences.ended(state, error)
    write_fences.write_handover(connection, volume_id, ended)


def _leaves(row: Attachment, new: NewHandover) -> bool:
    if new.source is None:
        return row.id != new.to
    return row.id == new.source


def _check(new: NewHandover, follower: Attachment, leaving: list[Attachment]) -> None:
    """Check that there is something to hand over, and to another host.

    :raises Conflict: there is not.
    """
    if new.source == new.to:
        raise Conflict(
            f"lunshare:handover.to: it is {new.to}, as from; name another attachment"
        )
    if not leaving and (new.source is not None or follower.writes):
        raise Conflict(
            f"lunshare:handover.from: attachment {new.source or 'other than to'} does"
            f" not have volume {new.volume_id} rw; name one that has, or change the"
            " mode of the other one"
        )


def _check_initiators(leaving: list[Attachment], staying: list[Attachment]) -> None:
    """Check that nobody who leaves writes by an attachment that stays.

    :raises Conflict: names both.
    """
    for row, other in itertools.product(leaving, staying):
        if not {*row.initiators}.isdisjoint(other.initiators):
            raise Conflict(
                f"lunshare:handover: attachments {row.id} and {other.id} are of the"
                f" same initiator {row.initiators[0]}, which has one mode; leave from"
                " out, so that both leave, or name an attachment of another host as to"
            )


def _shown(connection: Connection, volume_id: str) -> State:
    state = write_fences.handover(connection, volume_id) or {}
    return {
        "volume_id": volume_id,
        "fencing_generation": write_fences.generation(connection, volume_id),
        "handover": {
            "status": state["status"],
            "from": state["from"],
            "to": state["to"],
            "force": state["force"],
            "fencing_generation": state["generation"],
            "started_at": state["started_at"],
            "fenced_at": state.get("fenced_at"),
            "promoted_at": state.get("promoted_at"),
            "reason": state.get("reason"),
        }
        if state
        else None,
    }
