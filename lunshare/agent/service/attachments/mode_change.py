# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Change the mode of a host that has a volume, and say when its last write has landed.

A host that loses write access is an initiator that its row replaces by itself: the row
names it as ``former_initiator`` until the target has answered. So it counts as a writer
until then, a restart and each reconcile repeat the same step, and nothing says before
that it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from oslo_log import log

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import AgentError, BackendFailed, Invalid
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import Attachment, Mode, RequestContext, Volume
from lunshare.agent.model.states import WANTED
from lunshare.agent.service.attachments import (
    access,
    lease_terms,
    refusals,
    wanted_state,
    writers_policy,
)
from lunshare.agent.service.attachments.access import (
    Access,
    allowed_mode,
    available_volume,
    check_not_fenced,
    read_policy,
)
from lunshare.agent.service.attachments.connectors import with_secrets
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModeChange:
    """An attachment in its new mode; ``pending``: why its writes may still land."""

    row: Attachment
    pending: str | None = None


class ModeChanges:
    """Changes modes of attachments that are open."""

    def __init__(
        self, db: Database, access: Access, locks: VolumeLocks, *, jobs: JobRunner
    ) -> None:
        self._db, self._access, self._locks, self._jobs = db, access, locks, jobs

    def change(
        self,
        ctx: RequestContext,
        attachment_id: str,
        mode: Mode,
        drain: bool = True,
        lease: NewLease | None = None,
    ) -> ModeChange:
        """Give the host this mode. Can be repeated, and then tells how it stands.

        To ro: the host's writes have landed, and no other one can, when this returns
        without ``pending``. Without ``drain`` it does not wait for that. To rw with a
        ``lease``: for so long, from the commit of this.

        :raises NotFound: the attachment.
        :raises Invalid: a lease of ro.
        :raises Conflict: it is not open, the volume is readonly, or its writers policy,
            its target, or another attachment of the initiator does not allow the mode.
        :raises BackendFailed: it has not become rw, and is or will be ro.
        """
        if lease is not None and mode is Mode.RO:
            raise Invalid(
                "attachment.lease: only the mode rw has a lease: leave it out"
            )
        volume_id = self._require(ctx, attachment_id).volume_id
        with self._locks.volume(volume_id, f"the mode of {attachment_id}"):
            if mode is Mode.RO:
                return self._fence(self._start_fence(ctx, attachment_id), drain)
            row = self._access.detach_replaced(self._require(ctx, attachment_id))
            return ModeChange(with_secrets(self._promote(row, mode, lease)))

    def finish(self, volume_id: str) -> None:
        """Fence the hosts of a volume that have lost their write access.

        :raises BackendFailed: a write may still land; each reconcile tries again.
        """
        with self._locks.volume(volume_id, "a fence"):
            with self._db.reading() as connection:
                rows = attachments.writers(connection, volume_id)
            errors = []
            for row in rows:
                try:
                    self._access.detach_replaced(row)
                except BackendFailed as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _start_fence(self, ctx: RequestContext, attachment_id: str) -> Attachment:
        """Commit that the host may not write any more.

        Also for a row that says ro: the answer is what the target says now.
        """
        with self._db.writing() as connection:
            row = attachments.require(connection, attachment_id, ctx)
            return self.start_fence(connection, row)

    def start_fence(
        self, connection: Connection, row: Attachment, leaving: Collection[str] = ()
    ) -> Attachment:
        """Write that the host may not write any more; the caller commits.

        ``leaving``: ids of attachments that become ro as well.

        :raises Conflict: as for ``change``.
        """
        _check(self._access, connection, row, Mode.RO, leaving)
        return write(connection, row, Mode.RO, row.initiator)

    def _fence(self, row: Attachment, drain: bool) -> ModeChange:
        if not drain:
            with self._db.reading() as connection:
                backend = volumes.require_row(connection, row.volume_id).backend
            self._jobs.run_later(self.finish, row.volume_id, backend)
            why = "it is fenced in the background; repeat the request to wait for it"
            return ModeChange(with_secrets(row), why)
        try:
            row = self._access.detach_replaced(row)
        except BackendFailed as error:
            why = f"{error}; each reconcile tries again, or repeat the request"
            return ModeChange(with_secrets(row), why)
        LOG.info(
            "[%s] host fenced: attachment=%s volume=%s initiator=%s",
            row.attached_host,
            row.id,
            row.volume_id,
            row.initiator,
        )
        return ModeChange(with_secrets(row))

    def _promote(
        self, row: Attachment, mode: Mode, lease: NewLease | None
    ) -> Attachment:
        """Commit that the host may write, then let it."""
        with self._db.writing() as connection:
            row = attachments.require(connection, row.id)
            volume = self.check_promotion(connection, row)
            is_new = row.mode is not mode
            if is_new:
                allowed_mode(connection, volume, row, mode, asked=True)
                row = write(connection, row, mode, None)
            if lease_terms.is_due(row):
                raise refusals.lease_ended(row)
            if lease is not None:
                self._check_lease(connection, volume, row, lease)
                row = lend(connection, row, lease)
        if is_new:
            self.open(volume, row)
        else:  # after a fence it may not be open yet
            self._access.apply(volume, row.initiator)
        return row

    def _check_lease(
        self, connection: Connection, volume: Volume, row: Attachment, lease: NewLease
    ) -> None:
        """:raises Conflict: its end could not be enforced, or nobody could follow."""
        self._access.check_support(volume, Mode.RO, row.initiator)
        policy = read_policy(connection, volume)
        if lease.then_next and not (policy and policy.lists):
            raise refusals.nobody_is_next(volume.id)

    def check_promotion(
        self,
        connection: Connection,
        row: Attachment,
        leaving: Collection[str] = (),
    ) -> Volume:
        """Return the volume of a row whose host may write, as far as rows say.

        :raises Conflict: it may not, when the attachments ``leaving`` are not rw.
        """
        volume = _check(self._access, connection, row, wanted_state.PROMOTED)
        if volume.readonly:
            raise refusals.readonly(row)
        policy, losing = read_policy(connection, volume), {*leaving, row.id}
        if policy is not None:
            rows = access.unfenced_writers(connection, volume.id)
            present = [other for other in rows if other.id not in losing]
            if why := writers_policy.refusal(policy, row, lambda: present):
                raise why
        return volume

    def start_promotion(
        self, connection: Connection, row: Attachment
    ) -> tuple[Volume, Attachment]:
        """Write that the host may write; the caller commits, then calls ``open``.

        :raises Conflict: it may not.
        """
        volume = self.check_promotion(connection, row)
        return volume, write(connection, row, wanted_state.PROMOTED, None)

    def open(
        self,
        volume: Volume,
        row: Attachment,
        failed: Callable[[Connection, Exception], None] = lambda *_: None,
    ) -> None:
        """Let a host write whose row says so.

        If that fails, it is fenced again, since it may have been let in. ``failed`` is
        called in the transaction that commits this.
        """
        try:
            self._access.apply(volume, row.initiator)
        except Exception as error:
            with self._db.writing() as connection:
                row = write(connection, row, Mode.RO, row.initiator)
                failed(connection, error)
            self._fence_failed(row)
            raise

    def _fence_failed(self, row: Attachment) -> None:
        try:
            self._access.detach_replaced(row)
        except AgentError as error:
            LOG.error(
                "[%s] fence pending: attachment=%s: %s",
                row.attached_host,
                row.id,
                error,
            )

    def _require(self, ctx: RequestContext, attachment_id: str) -> Attachment:
        with self._db.reading(one_statement=True) as connection:
            return attachments.require(connection, attachment_id, ctx)


def _check(
    access: Access,
    connection: Connection,
    row: Attachment,
    mode: Mode,
    leaving: Collection[str] = (),
) -> Volume:
    """Return the volume of a row whose host may get this mode, as far as rows say.

    :raises Conflict: it may not.
    """
    is_open = row.status in WANTED and row.connection_info is not None
    is_whole = row.former_initiator in (None, row.initiator)
    if row.initiator is None or not (is_open and is_whole) or row.legacy:
        raise refusals.mode_not_changeable(row)
    if mode is Mode.RO:  # whatever the status: a host can be fenced always
        volume = volumes.require_row(connection, row.volume_id)
        access.check_support(volume, mode, row.initiator)
    else:
        field = "attachment.mode"
        check_not_fenced(connection, field, row.initiator, row.attached_host)
        volume = available_volume(connection, row)
    same = attachments.of_initiator(connection, volume.id, row.initiator)
    staying = (other for other in same if other.id not in leaving)
    other = wanted_state.find_other_mode(staying, row.id, mode)
    if other is not None:
        raise refusals.mixed_modes(other, mode)
    return volume


def write(
    connection: Connection,
    row: Attachment,
    mode: Mode,
    former_initiator: str | None,
) -> Attachment:
    """Write the new mode, and what the host is told of it."""
    info = row.connection_info
    lease = {"lease": None, "lease_ends": None}
    values: dict[str, Any] = {
        "mode": mode,
        "former_initiator": former_initiator,
        "connection_info": info and {**info, "access_mode": mode},
        **(lease_terms.ended(row) if mode is Mode.RO else lease),
    }
    attachments.set_values(connection, row.id, **values)
    return replace(row, **values)


def lend(connection: Connection, row: Attachment, lease: NewLease) -> Attachment:
    """Write that the host may write for so long, from now on."""
    values = lease_terms.begun(lease)
    attachments.set_values(connection, row.id, **values)
    return replace(row, **values)
