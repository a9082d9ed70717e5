# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Plan a new volume: its backend, its size, its type and its source.

A volume with the bytes of a source is created on the source's backend and is at
least as large. What the request does not name (size, type, multiattach) is that of
the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import (
    NewVolume,
    RequestContext,
    Snapshot,
    Volume,
    VolumeType,
)
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.agent.service.scheduling.explanation import (
    Choice,
    Hints,
    PlacementRequest,
)
from lunshare.agent.service.scheduling.scheduler import Scheduler, refusal
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes import rows


@dataclass(frozen=True, slots=True)
class CreatePlan:
    """What the row of a new volume will have.

    ``volume_type`` is the type that it names or gets by default, None if it has
    none or gets its source's. ``origin`` is the volume whose bytes it gets, as it
    was when this was planned. ``owned``: origin and source belong to one project;
    they do not if the volume went to another project after its snapshot.
    ``choice`` is that of the scheduler, which may have no pool.
    """

    size: int
    choice: Choice
    volume_type: VolumeType | None
    type_id: str | None
    multiattach: bool
    intent: Mapping[str, Any] | None = None
    origin: Volume | None = None
    owned: bool = True

    @property
    def image(self) -> Volume | None:
        """The volume whose image metadata it gets, None where they are not copied."""
        return self.origin if self.owned else None

    @property
    def backend(self) -> str:
        """The chosen backend; empty where no pool can hold the volume."""
        return self.choice.chosen.backend if self.choice.chosen else ""

    @property
    def problem(self) -> str | None:
        """Why no pool can hold the volume, None where one can."""
        return None if self.choice.chosen else refusal(self.choice).message


class CreatePlanner:
    """Plans new volumes."""

    def __init__(self, db: Database, types: Types, scheduler: Scheduler) -> None:
        self._db, self._types, self._scheduler = db, types, scheduler

    def plan(self, ctx: RequestContext, new: NewVolume) -> CreatePlan:
        """Decide what has to be decided before the row is written.

        :raises NotFound: the volume type or the source.
        :raises Invalid: the source does not allow the size or the type.
        """
        origin, least, owned = self._find_source(ctx, new)
        if origin is None:
            return self._plan_without_source(ctx, new)
        named = new.volume_type
        volume_type = self._types.resolve(ctx, named) if named else None
        if not named and not owned:
            volume_type = self._type_of_snapshot(ctx, new.snapshot_id or "")
        inherits = owned and volume_type is None
        size = _checked_size(new, least)
        return CreatePlan(
            size=size,
            choice=self._choose(ctx, new, size, volume_type, origin.backend),
            volume_type=volume_type,
            type_id=origin.volume_type_id if inherits else _id(volume_type),
            multiattach=origin.multiattach if inherits else _is_shared(volume_type),
            intent={"source_size": least} if new.source_volid else None,
            origin=origin,
            owned=owned,
        )

    def _type_of_snapshot(
        self, ctx: RequestContext, snapshot_id: str
    ) -> VolumeType | None:
        """Return the type that the volume had then, if the project may use it."""
        with self._db.reading() as connection:
            type_id = snapshots.type_id(connection, snapshot_id)
        try:
            return self._types.get(ctx, type_id) if type_id else None
        except NotFound:
            return None

    def lock_source(
        self,
        connection: Connection,
        ctx: RequestContext,
        new: NewVolume,
        plan: CreatePlan,
    ) -> None:
        """Check that the source is as planned, and lock it for this transaction.

        :raises NotFound: the source.
        :raises Invalid: the source is unavailable.
        :raises Busy: it has changed since it was planned.
        """
        if new.snapshot_id:
            _require_snapshot(connection, ctx, new.snapshot_id)
        elif new.source_volid and not volumes.lock_available(
            connection, new.source_volid
        ):
            raise _source_error(volumes.require(connection, new.source_volid, ctx))
        if plan.origin is not None:
            # Of a snapshot that stayed when its volume went to another project.
            owner = ctx if new.source_volid else None
            now = volumes.require(connection, plan.origin.id, owner)
            _check_unchanged(plan.origin, now)

    def _plan_without_source(self, ctx: RequestContext, new: NewVolume) -> CreatePlan:
        if new.size is None:
            raise Invalid("volume.size: give it, or a source whose size it then has.")
        volume_type = self._types.resolve(ctx, new.volume_type)
        return CreatePlan(
            size=new.size,
            choice=self._choose(ctx, new, new.size, volume_type),
            volume_type=volume_type,
            type_id=_id(volume_type),
            multiattach=_is_shared(volume_type),
        )

    def _choose(
        self,
        ctx: RequestContext,
        new: NewVolume,
        size: int,
        volume_type: VolumeType | None,
        only: str | None = None,
    ) -> Choice:
        zone, hints = new.availability_zone, self._hints(ctx, new)
        request = PlacementRequest(size, volume_type, zone, only, hints=hints)
        return self._scheduler.choose(request)

    def _hints(self, ctx: RequestContext, new: NewVolume) -> Hints:
        """Return which backends the scheduler hints mean. Unknown ids mean none."""
        if not new.same_host and not new.different_host:
            return Hints()
        with self._db.reading() as connection:
            rows = volumes.named_as(connection, [*new.same_host, *new.different_host])
        where = {row.id: row.backend for row in rows if ctx.sees(row.project_id)}
        same = {where[id_] for id_ in new.same_host if id_ in where}
        return Hints(
            frozenset(same) if new.same_host else None,
            frozenset(where[id_] for id_ in new.different_host if id_ in where),
        )

    def _find_source(
        self, ctx: RequestContext, new: NewVolume
    ) -> tuple[Volume | None, int, bool]:
        """Return the volume whose bytes it gets, how many GiB they are, and ``owned``.

        A snapshot may have stayed when its volume went to another project. What that
        project has written since (image metadata, type) is not copied.
        """
        if new.snapshot_id and new.source_volid:
            raise Invalid("volume.source_volid: leave it out, or snapshot_id.")
        with self._db.reading() as connection:
            if new.snapshot_id:
                snapshot = _require_snapshot(connection, ctx, new.snapshot_id)
                origin = volumes.require(connection, snapshot.volume_id)
                return origin, snapshot.size, origin.project_id == snapshot.project_id
            if new.source_volid:
                origin = volumes.require(connection, new.source_volid, ctx)
                if origin.own_status is not VolumeStatus.AVAILABLE:
                    raise _source_error(origin)
                return origin, origin.size, True
        return None, 0, True


def _id(kind: VolumeType | None) -> str | None:
    return kind.id if kind else None


def _is_shared(kind: VolumeType | None) -> bool:
    return kind.multiattach if kind else False


def _check_unchanged(seen: Volume, found: Volume) -> None:
    """Check that all that a plan has from its source is as it was.

    While a volume is reverted, a driver may create its snapshot again.
    """
    copied = ("backend", "size", "volume_type_id", "multiattach")
    same = all(getattr(seen, name) == getattr(found, name) for name in copied)
    if not same or found.own_status is VolumeStatus.REVERTING:
        raise rows.changed_meanwhile(found.id)


def _checked_size(new: NewVolume, least: int) -> int:
    if new.size is None:
        return least
    if new.size < least:
        raise Invalid(
            f"volume.size: {new.size} GiB is less than the size of its source; give"
            f" {least} or more, or leave it out."
        )
    return new.size


def _require_snapshot(
    connection: Connection, ctx: RequestContext, snapshot_id: str
) -> Snapshot:
    snapshot = snapshots.require(connection, snapshot_id, ctx)
    if snapshot.status is not SnapshotStatus.AVAILABLE:
        raise Invalid(
            f"volume.snapshot_id: snapshot {snapshot.id} is {snapshot.status}; it must"
            " be available."
        )
    return snapshot


def _source_error(origin: Volume) -> Invalid:
    return Invalid(
        f"volume.source_volid: volume {origin.id} is {origin.status}; it must be"
        " available or in-use."
    )
