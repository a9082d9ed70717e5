# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which volumes may be deleted, and why others may not."""

from __future__ import annotations

from collections.abc import Collection

from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Connection
from lunshare.agent.model.errors import AgentError, Invalid
from lunshare.agent.model.records import RequestContext, Snapshot, Volume
from lunshare.agent.model.states import (
    DELETABLE_SNAPSHOT,
    RUNNING,
    SnapshotStatus,
    VolumeStatus,
)
from lunshare.agent.service.volumes.rows import changed_meanwhile

#: The own statuses of volumes that a delete accepts.
DELETABLE = frozenset(
    {
        VolumeStatus.AVAILABLE,
        VolumeStatus.ERROR,
        VolumeStatus.ERROR_DELETING,
        VolumeStatus.ERROR_EXTENDING,
        VolumeStatus.ERROR_MANAGING,
    }
)


def remove_unplaced(connection: Connection, volume: Volume) -> None:
    """Remove the row of a volume that no pool could hold: it has no disk to delete.

    Call it in the transaction of the delete.
    """
    if not volume.backend:
        volumes.remove(connection, volume.id)


def may_be_forced(volume: Volume) -> bool:
    """Whether a force delete is allowed: no operation works on it that must end."""
    if volume.own_status is VolumeStatus.AWAITING_TRANSFER:
        return False
    cancelled = (VolumeStatus.CREATING, VolumeStatus.DELETING)
    works = volume.own_status in RUNNING and volume.reset_from is None
    return not works or volume.own_status in cancelled


def start_snapshot_deletes(
    connection: Connection, ctx: RequestContext, volume_id: str
) -> None:
    """Set all snapshots of a volume to deleting.

    :raises Invalid: one of them cannot be deleted, or is of another project.
    """
    deleting = SnapshotStatus.DELETING
    its_snapshots = snapshots.of_volume(connection, volume_id)
    check_snapshots_visible(ctx, volume_id, its_snapshots)
    for row in its_snapshots:
        if row.status is not deleting and not snapshots.change_status(
            connection, row.id, DELETABLE_SNAPSHOT, deleting, unread=True
        ):
            raise Invalid(
                f"Invalid volume: its snapshot {row.id} is {row.status}, or a volume"
                " is being created from it; it cannot be deleted now, try again later"
            )


def delete_error(
    connection: Connection, ctx: RequestContext, volume: Volume
) -> AgentError:
    """Return why a volume was not deleted."""
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments and cannot be deleted; delete those first"
        )
    if volume.own_status not in DELETABLE:
        return Invalid(
            f"Invalid volume: volume {volume.id} is {volume.status} and cannot be"
            f" deleted; it must be one of {', '.join(sorted(DELETABLE))}"
        )
    return still_needed(connection, volume, ctx) or changed_meanwhile(volume.id)


def check_snapshots_visible(
    ctx: RequestContext, volume_id: str, its_snapshots: Collection[Snapshot]
) -> None:
    """Check that a client may delete all of these with their volume.

    They stay with their project when a volume is transferred without them.

    :raises Invalid: one is of another project, which only administrators see.
    """
    hidden = [row for row in its_snapshots if not ctx.sees(row.project_id)]
    if hidden:
        raise Invalid(
            f"Invalid volume: {len(hidden)} snapshots of volume {volume_id} are of"
            " another project and need it; ask an administrator"
        )


def still_needed(
    connection: Connection, volume: Volume, ctx: RequestContext | None = None
) -> Invalid | None:
    """Return the error if a snapshot or a clone still needs the disk, else None.

    ``ctx``: as in ``require``.
    """
    its_snapshots = snapshots.of_volume(connection, volume.id)
    if ctx is not None:
        try:
            check_snapshots_visible(ctx, volume.id, its_snapshots)
        except Invalid as error:
            return error
    if its_snapshots:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(its_snapshots)} snapshots;"
            " delete those first, or delete the volume with cascade=true"
        )
    clone = volumes.clone_in_progress(connection, volume.id)
    if clone:
        return Invalid(
            f"Invalid volume: volume {volume.id} is the source of {clone}, which is not"
            " complete yet; wait for that one, or delete it first"
        )
    return None
