# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Compare live targets with the rows: what has drifted, and whether it is put right.

The wanted access is the pure function of the rows that ``Access.apply`` uses, the
difference is read by the target, and a repair is ``Access.apply`` itself. The volume's
lock is held meanwhile, so what an operation is changing is never drift. What was found
is exported in memory: after a restart nothing counts as verified.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments, due_attachments, volumes
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.errors import AgentError, BackendFailed, BackendUnavailable
from lunshare.agent.model.operator_records import Verification
from lunshare.agent.model.records import Attachment, RequestContext, Volume
from lunshare.agent.model.states import WANTED
from lunshare.agent.service.attachments.access import Access, read_wanted
from lunshare.agent.service.driver_values import driver_volume
from lunshare.agent.service.reservation_keys import allows_reservations
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.drifts import Drift

LOG = log.getLogger(__name__)

#: Gets the kind of each difference that was not earlier before.
Counted = Callable[[str], object]


class Verifier:
    """Verifies the targets of this node's volumes."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        access: Access,
        opening: Callable[[], Collection[str]],
        repairs: bool = True,
        counted: Counted = lambda _: None,
    ) -> None:
        """``repairs``: whether a reconcile puts right what has drifted.

        ``opening`` returns the ids of attachments that a fence gives back now.
        """
        self._db, self._backends, self._locks = db, backends, locks
        self._access, self._opening = access, opening
        self._repairs, self._counted = repairs, counted
        self._last: dict[str, Verification] = {}
        self._clean: dict[str, datetime] = {}
        # Applied in full since the start: what differs later is drift.
        self._applied: set[str] = set()

    def verify(
        self, ctx: RequestContext, volume_id: str | None = None, repair: bool = False
    ) -> list[Verification]:
        """Compare the targets of all volumes with hosts, or of one; repair them.

        A volume that an operation works on is not waited for, unless it is the one. One
        that is deleted meanwhile is left out.

        :raises NotFound: the volume.
        """
        with self._db.reading() as connection:
            if volume_id is None:
                ids = due_attachments.volumes_to_reconcile(connection)
            else:
                ids = [volumes.require(connection, volume_id, ctx).id]
        wait = 0 if volume_id is None else None
        verifications = (self._verify(ident, repair, wait) for ident in ids)
        return list(filter(None, verifications))

    def apply(self, volume: Volume, *, verifies: bool) -> tuple[str, ...]:
        """Apply the rows to a volume's target; return what was changed.

        A reconcile calls it, with the volume's lock. What has drifted since the last
        time is noted, and left as it is where the node only reports. ``verifies``:
        whether what was applied is compared too; at a start the listener waits for it.

        :raises BackendFailed: as ``Access.apply``.
        """
        verification = self._look(volume) if volume.id in self._applied else None
        if verification and _is_to_repair(verification) and not self._repairs:
            return ()
        self._applied.discard(volume.id)
        changed = self._apply(volume)
        if verifies and (verification is None or verification.drift):
            self._look(volume, verification)
        self._applied.add(volume.id)
        return changed

    def forget_others(self, volume_ids: Iterable[str]) -> None:
        """Forget the volumes that have no hosts and no target any more."""
        exported = set(volume_ids)
        self._applied &= exported
        for volume_id in (self._last.keys() | self._clean.keys()) - exported:
            self._last.pop(volume_id, None)
            self._clean.pop(volume_id, None)

    def verified_at(self, volume_id: str) -> datetime | None:
        """Return when a volume's target was last found right, None if never."""
        return self._clean.get(volume_id)

    def remaining(self) -> tuple[list[str], list[str]]:
        """Return sentences about drift that is not put right: ours, and foreign."""
        ours: list[str] = []
        foreign: list[str] = []
        for volume_id, verification in list(self._last.items()):
            for drift in verification.remaining:
                sentence = f"volume {volume_id}: {drift.what} (drift: {drift.kind})"
                (ours if drift.is_ours else foreign).append(sentence)
        return ours, foreign

    def _verify(
        self, volume_id: str, repair: bool, wait: float | None
    ) -> Verification | None:
        try:
            with self._locks.volume(volume_id, "verify", timeout=wait):
                with self._db.reading() as connection:
                    volume = volumes.get_row(connection, volume_id)
                if volume is None:
                    return None
                if self._backends.reaches(volume.backend, volume_id):
                    return self._verify_locked(volume, repair)
                why = f"backend {volume.backend} does not reach it"
        except AgentError as error:
            why = str(error)
        return Verification(volume_id, now(), problem=why)

    def _verify_locked(self, volume: Volume, repair: bool) -> Verification:
        verification = self._compare(volume)
        if repair and _is_to_repair(verification):
            try:
                self._apply(volume)
            except AgentError as error:
                return replace(verification, problem=str(error))
            return self._compare(volume, verification)
        return verification

    def _look(
        self, volume: Volume, before: Verification | None = None
    ) -> Verification | None:
        """Compare; None where that fails, which keeps nothing from being applied.

        :raises BackendUnavailable: the target hangs, so ``apply`` would wait as well.
        """
        try:
            return self._compare(volume, before)
        except BackendUnavailable:
            raise
        except BackendFailed as error:
            LOG.error("not verified: volume=%s %s", volume.id, error)
            return None

    def _apply(self, volume: Volume) -> tuple[str, ...]:
        _, changed = self._access.apply(volume)
        return changed

    def _compare(
        self, volume: Volume, before: Verification | None = None
    ) -> Verification:
        """Compare, and remember it. ``before``: what was found before the repair.

        The rows are read last: what a fence, which commits without the lock, has begun
        or ended meanwhile is no drift either.
        """
        drifts = self._differences(volume)
        busy = self._unfinished(volume) if drifts else set[str]()
        remaining = tuple(drift for drift in drifts if drift.initiator not in busy)
        self._note(volume.id, remaining, before)
        drift = dict.fromkeys((*(before.drift if before else ()), *remaining))
        verification = Verification(volume.id, now(), tuple(drift), remaining)
        self._last[volume.id] = verification
        if not remaining:
            self._clean[volume.id] = verification.at
        return verification

    def _differences(self, volume: Volume) -> tuple[Drift, ...]:
        """Return how the live export differs from what ``apply`` would make of it."""
        with self._db.reading() as connection:
            accesses = read_wanted(connection, volume.id, None).accesses
        reserves = bool(accesses) and allows_reservations(self._db, volume)
        with self._backends[volume.backend].for_request() as drivers:
            return drivers.compare(driver_volume(volume, reserves), accesses)

    def _unfinished(self, volume: Volume) -> set[str]:
        with self._db.reading() as connection:
            rows = attachments.of_volume(connection, volume.id)
        return unfinished(rows, self._opening())

    def _note(
        self, volume_id: str, remaining: tuple[Drift, ...], before: Verification | None
    ) -> None:
        """Log and count what is new, and log what a repair has ended."""
        earlier = self._last.get(volume_id)
        for drift in remaining:
            if earlier is None or drift not in earlier.remaining:
                line = "drift: volume=%s kind=%s %s"
                LOG.warning(line, volume_id, drift.kind, drift.what)
                self._counted(drift.kind)
        for drift in before.drift if before else ():
            if drift not in remaining:
                LOG.warning("drift repaired: volume=%s %s", volume_id, drift.what)


def _is_to_repair(verification: Verification) -> bool:
    """Whether something differs that ``Access.apply`` puts right."""
    return any(drift.is_ours for drift in verification.remaining)


def unfinished(rows: Iterable[Attachment], opening: Collection[str] = ()) -> set[str]:
    """Return the initiators whose access an operation has begun to change. Pure.

    Their rows say what is wanted, and what is still to be done; each reconcile
    continues it. ``opening``: ids of attachments that a fence gives back now.
    """
    return {
        initiator
        for row in rows
        for initiator in row.initiators
        if row.status not in WANTED
        or row.connection_info is None
        or row.former_initiator is not None
        or row.is_fencing
        or row.id in opening
    }
