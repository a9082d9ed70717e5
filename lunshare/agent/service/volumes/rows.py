# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The row of a volume: read it, check it, change its status."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from lunshare.agent.db import status_changes, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import AgentError, Busy, Conflict, Exhausted, Invalid
from lunshare.agent.model.records import (
    Manageable,
    ManageableSnapshot,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import VolumeStatus

#: Drivers raise the errors that become these before they change anything.
_REFUSALS = (Invalid, Exhausted, Conflict)


class VolumeRows:
    """The rows of volumes, one at a time. Each call is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, volume_id: str, ctx: RequestContext | None = None) -> Volume:
        """Return one volume with its attachments; ``ctx`` as in its ``require``.

        :raises NotFound: the volume does not exist, or is deleted.
        """
        with self._db.reading() as connection:
            return volumes.require(connection, volume_id, ctx)

    def get_if(self, volume_id: str, states: Collection[VolumeStatus]) -> Volume | None:
        """Return the volume if its own status is one of these, else None."""
        with self._db.reading() as connection:
            volume = volumes.get(connection, volume_id)
        return volume if volume and volume.own_status in states else None

    def get_to_retry(
        self, volume_id: str, running: VolumeStatus, failed: VolumeStatus
    ) -> Volume | None:
        """Return the volume if it is ``running``; change ``failed`` to that first.

        None if an administrator has set that status: nothing is to be done for it.
        """
        volume = self.get_if(volume_id, {running, failed})
        if volume is None or volume.reset_from:
            return None
        if volume.own_status is failed:
            self.change_status(volume, running)
            volume = self.get_if(volume_id, {running})
        return volume

    def check_unchanged(self, volume_id: str, size: int) -> None:
        """Check that the volume, whose lock the caller has, is still as it was.

        :raises Conflict: another operation was started, or it has grown.
        """
        volume = self.get(volume_id)
        if volume.own_status is not VolumeStatus.AVAILABLE or volume.size != size:
            raise Conflict(
                f"volume {volume_id} is {volume.status} and has {volume.size} GiB by"
                f" now, not {size}: try again"
            )

    def change_status(
        self,
        volume: Volume,
        new: VolumeStatus,
        reason: str | None = None,
        **values: Any,
    ) -> bool:
        """Change the row if it is as ``volume``; see ``db.status_changes``."""
        with self._db.writing() as connection:
            return status_changes.change_status(
                connection, volume, new, reason=reason, **values
            )

    @contextmanager
    def busy_if_changed(self, seen: Volume) -> Iterator[None]:
        """Check inside whether the volume as it was ``seen`` allows an operation.

        :raises Busy: instead of any error, when the volume has changed meanwhile.
        """
        try:
            yield
        except AgentError as error:
            with self._db.reading() as connection:
                now = volumes.get(connection, seen.id)
            if status_changes.is_unchanged(seen, now):
                raise
            raise changed_meanwhile(seen.id) from error

    def update(self, volume_id: str, **values: Any) -> None:
        """Write columns other than the status."""
        with self._db.writing() as connection:
            volumes.set_values(connection, volume_id, **values)

    def mark_deleted(self, volume_id: str) -> None:
        """Mark a volume deleted."""
        with self._db.writing() as connection:
            volumes.remove(connection, volume_id)


def check_has_project(ctx: RequestContext) -> None:
    """Check that what a client creates or takes will belong to a project.

    :raises Invalid: it is an administrator of the system or of a domain.
    """
    if not ctx.project_id:
        raise Invalid(
            "The token has no project, but a new resource belongs to one: get a token"
            " of a project, or name a project in the path (/v3/PROJECT/...)."
        )


def check_safe(shown: Manageable | ManageableSnapshot, field: str) -> None:
    """Check that what ``field`` of a body names can be managed now.

    :raises Invalid: it cannot.
    """
    if shown.problem:
        raise Invalid(
            f"{field}.ref.source-name: {shown.reference!r} cannot be managed:"
            f" {shown.problem}."
        )


def changed_meanwhile(volume_id: str) -> Busy:
    """Return the 409 for a volume that changed after it was read."""
    return Busy(f"volume {volume_id} has just changed: try again")


def is_refusal(error: Exception) -> bool:
    """Whether the error means that the driver changed nothing."""
    return isinstance(error, _REFUSALS) and isinstance(error, AgentError)


def wrong_status(volume: Volume, what: str, must: str) -> Invalid:
    """Return the error of a volume whose status does not allow an operation.

    ``what`` is a participle (``extended``), ``must`` the statuses that allow it.
    """
    return Invalid(
        f"Invalid volume: volume {volume.id} is {volume.status} and cannot be {what};"
        f" it must be {must}"
    )
