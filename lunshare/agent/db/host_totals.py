# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What each project has on one backend, counted in the rows."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUMES

_V = VOLUMES.c
_S = SNAPSHOTS.c

#: Volumes, their GiB, snapshots, their GiB; by project.
Totals = tuple[str, tuple[int, int, int, int]]


def of_backend(connection: sa.Connection, backend: str) -> list[Totals]:
    """Return the totals of each project, by its id.

    The cost grows with the volumes of the backend: it is for an operator.
    """
    if not backend:
        return []  # no backend has this name; an unplaced volume is on none either
    zero = sa.literal(0)
    its_volumes = sa.select(
        _V.project_id,
        sa.literal(1).label("volumes"),
        _V.size.label("gigabytes"),
        zero.label("snapshots"),
        zero.label("snapshot_gigabytes"),
    ).where(_V.backend == backend, _V.deleted == sa.false())
    its_snapshots = (
        sa.select(_S.project_id, zero, zero, sa.literal(1), _S.volume_size)
        .join_from(SNAPSHOTS, VOLUMES, _V.id == _S.volume_id)
        .where(_V.backend == backend, _S.deleted == sa.false())
    )
    every = sa.union_all(its_volumes, its_snapshots).subquery().c
    sums = [sa.func.sum(column) for column in list(every)[1:]]
    query = sa.select(every.project_id, *sums)
    query = query.group_by(every.project_id).order_by(every.project_id)
    return [
        (project_id, (volumes, gigabytes, snapshots, snapshot_gigabytes))
        for project_id, volumes, gigabytes, snapshots, snapshot_gigabytes in (
            connection.execute(query)
        )
    ]
