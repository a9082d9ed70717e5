# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a new volume goes, and what it is made of.

A volume made of another's bytes is made where those are, is as large as they
at least, and takes what it does not name (size, type, sharing) from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import (
    NewVolume,
    RequestContext,
    Snapshot,
    Volume,
    VolumeType,
)
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.types import Types
from lunshare.agent.service.volumes import rows
from lunshare.agent.states import SnapshotStatus, VolumeStatus


@dataclass(frozen=True, slots=True)
class CreatePlan:
    """What a new volume's row will say of where it comes from and goes to.

    ``kind`` is the type it asked for or gets by default, None if it has none
    or takes its source's. ``origin`` is the volume whose bytes it gets, as it was
    when this was planned.
    """

    size: int
    backend: str
    kind: VolumeType | None
    type_id: str | None
    multiattach: bool
    intent: Mapping[str, Any] | None = None
    origin: Volume | None = None


class CreatePlanner:
    """Plans new volumes."""

    def __init__(self, db: Database, types: Types, pools: Pools) -> None:
        self._db, self._types, self._pools = db, types, pools

    def plan(self, ctx: RequestContext, new: NewVolume) -> CreatePlan:
        """Decide everything that is decided before the row is there.

        :raises NotFound: the volume type or the source.
        :raises Invalid: size or type do not go with the source, or no backend can
            do what the type asks for.
        :raises Exhausted: no backend has room.
        """
        origin, least = self._origin(new)
        if origin is None:
            return self._plain(ctx, new)
        kind = self._types.resolve(new.volume_type) if new.volume_type else None
        size = _size(new, least)
        return CreatePlan(
            size=size,
            backend=self._pools.choose(
                ctx, size, kind, new.availability_zone, only=origin.backend
            ),
            kind=kind,
            type_id=kind.id if kind else origin.volume_type_id,
            multiattach=kind.multiattach if kind else origin.multiattach,
            intent={"moment": least} if new.source_volid else None,
            origin=origin,
        )

    def hold(self, connection: Any, new: NewVolume, plan: CreatePlan) -> None:
        """Keep the source as it was planned with while the row comes into being.

        :raises Invalid: it is not to be had.
        :raises Busy: it has changed since.
        """
        if new.snapshot_id:
            _whole(snapshots.get(connection, new.snapshot_id), new.snapshot_id)
        elif new.source_volid and not volumes.hold(connection, new.source_volid):
            raise _unready(rows.require(connection, new.source_volid))
        if plan.origin is not None:
            _check_steady(plan.origin, rows.require(connection, plan.origin.id))

    def _plain(self, ctx: RequestContext, new: NewVolume) -> CreatePlan:
        if new.size is None:
            raise Invalid("volume.size: give it, or a source whose size it then has.")
        kind = self._types.resolve(new.volume_type)
        return CreatePlan(
            size=new.size,
            backend=self._pools.choose(ctx, new.size, kind, new.availability_zone),
            kind=kind,
            type_id=kind.id if kind else None,
            multiattach=kind.multiattach if kind else False,
        )

    def _origin(self, new: NewVolume) -> tuple[Volume | None, int]:
        """The volume whose bytes it gets, and the GiB of them."""
        if new.snapshot_id and new.source_volid:
            raise Invalid("volume.source_volid: leave it out, or snapshot_id.")
        with self._db.reading() as connection:
            if new.snapshot_id:
                found = snapshots.get(connection, new.snapshot_id)
                whole = _whole(found, new.snapshot_id)
                return rows.require(connection, whole.volume_id), whole.size
            if new.source_volid:
                origin = rows.require(connection, new.source_volid)
                if origin.own_status is not VolumeStatus.AVAILABLE:
                    raise _unready(origin)
                return origin, origin.size
        return None, 0


def _check_steady(seen: Volume, found: Volume) -> None:
    """Whether all that a plan takes from its source is as it was.

    While a volume is reverted, a driver may take its snapshot anew.
    """
    taken = ("backend", "size", "volume_type_id", "multiattach")
    steady = all(getattr(seen, name) == getattr(found, name) for name in taken)
    if not steady or found.own_status is VolumeStatus.REVERTING:
        raise rows.changed_meanwhile(found.id)


def _size(new: NewVolume, least: int) -> int:
    if new.size is None:
        return least
    if new.size < least:
        raise Invalid(
            f"volume.size: {new.size} GiB is less than its source has; give"
            f" {least} or more, or leave it out."
        )
    return new.size


def _whole(snapshot: Snapshot | None, snapshot_id: str) -> Snapshot:
    if snapshot is None:
        raise NotFound("snapshot", snapshot_id)
    if snapshot.status is not SnapshotStatus.AVAILABLE:
        raise Invalid(
            f"volume.snapshot_id: snapshot {snapshot.id} is {snapshot.status}; it must"
            " be available."
        )
    return snapshot


def _unready(origin: Volume) -> Invalid:
    return Invalid(
        f"volume.source_volid: volume {origin.id} is {origin.status}; it must be"
        " available or in-use."
    )
