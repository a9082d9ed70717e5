# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume's row, as every operation on a volume begins and ends with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from lunshare.agent.db import snapshots, status_changes, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import (
    AgentError,
    Busy,
    Conflict,
    Exhausted,
    Invalid,
    NotFound,
)
from lunshare.agent.records import Volume
from lunshare.agent.states import VolumeStatus

#: Drivers raise what becomes these before they change anything.
_REFUSALS = (Invalid, Exhausted, Conflict)


class VolumeRows:
    """The rows of volumes, one at a time, each call a transaction of its own."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, volume_id: str) -> Volume:
        """One volume with its attachments.

        :raises NotFound: there is none, or not any more.
        """
        with self._db.reading() as connection:
            return require(connection, volume_id)

    def get_if(self, volume_id: str, states: Collection[VolumeStatus]) -> Volume | None:
        """The volume, if its own status is one of these."""
        with self._db.reading() as connection:
            volume = volumes.get(connection, volume_id)
        return volume if volume and volume.own_status in states else None

    def get_to_resume(
        self, volume_id: str, going: VolumeStatus, failed: VolumeStatus
    ) -> Volume | None:
        """The volume, if that is under way; or has failed, and then it is again."""
        volume = self.get_if(volume_id, {going, failed})
        if volume is not None and volume.own_status is failed:
            self.change_status(volume, going)
            volume = self.get_if(volume_id, {going})
        return volume

    def check_unchanged(self, volume_id: str, size: int) -> None:
        """The caller, who has its lock, goes on only if it is still as it was.

        :raises Conflict: something else was begun, or it has grown.
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
        """Go on from ``volume`` as it was read; see agent/db/status_changes."""
        with self._db.writing() as connection:
            return status_changes.move(connection, volume, new, reason=reason, **values)

    @contextmanager
    def unless_changed(self, seen: Volume) -> Iterator[None]:
        """What fails inside says nothing if the volume is not as it was ``seen``.

        :raises Busy: instead of any error, if it has changed meanwhile.
        """
        try:
            yield
        except AgentError as error:
            with self._db.reading() as connection:
                now = volumes.get(connection, seen.id)
            if status_changes.same(seen, now):
                raise
            raise changed_meanwhile(seen.id) from error

    def update(self, volume_id: str, **values: Any) -> None:
        """Write columns that are not the status."""
        with self._db.writing() as connection:
            volumes.note(connection, volume_id, **values)

    def mark_deleted(self, volume_id: str) -> None:
        """Mark a volume deleted."""
        with self._db.writing() as connection:
            volumes.remove(connection, volume_id)


def require(connection: Any, volume_id: str) -> Volume:
    """One volume with its attachments.

    :raises NotFound: there is none, or not any more.
    """
    volume = volumes.get(connection, volume_id)
    if volume is None:
        raise NotFound("volume", volume_id)
    return volume


def changed_meanwhile(volume_id: str) -> Busy:
    """The 409 of a decision whose ground has moved."""
    return Busy(f"volume {volume_id} has just changed: try again")


def is_refusal(error: Exception) -> bool:
    """Whether a driver's error says that nothing was changed."""
    return isinstance(error, _REFUSALS) and isinstance(error, AgentError)


def wrong_status(volume: Volume, what: str, must: str) -> Invalid:
    """Why a volume's status does not allow it, in one sentence."""
    return Invalid(
        f"Invalid volume: volume {volume.id} is {volume.status} and cannot be {what};"
        f" it must be {must}"
    )


def still_needed(connection: Any, volume: Volume) -> Invalid | None:
    """What still needs the volume's disk where it is, in one sentence, or None."""
    kept = snapshots.of_volume(connection, volume.id)
    if kept:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(kept)} snapshots; delete"
            " those first, or delete the volume with cascade=true"
        )
    clone = volumes.clone_under_way(connection, volume.id)
    if clone:
        return Invalid(
            f"Invalid volume: volume {volume.id} is the source of {clone}, which is not"
            " whole yet; wait for that one, or delete it first"
        )
    return None
