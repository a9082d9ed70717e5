# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Old deleted rows are purged, nothing else is, and no writer waits for it."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import sqlalchemy as sa

from lunshare.agent.db import snapshots, volumes, write_fences
from lunshare.agent.db.purge import MAX_DELETED
from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.records import NewAttachment, NewSnapshot, Page
from lunshare.agent.service.jobs.purger import Purger
from tests import dead_rows
from tests.stands.node import CTX, Node, attach, node_fixture
from tests.stands.waiting import until

DAY = 86400


node = node_fixture(forget_storage=True)


def test_old_rows_are_purged_and_others_stay(node: Node) -> None:
    service = node.services
    dead, alive = node.plain_volume(), node.plain_volume()
    service.attachments.delete(CTX, attach(node, dead, "a").id)
    service.attachments.delete(CTX, attach(node, alive, "a").id)
    kept = service.snapshots.create(CTX, NewSnapshot(dead.id))
    service.attachments.create(CTX, NewAttachment(alive.id))
    service.snapshots.create(CTX, NewSnapshot(alive.id, in_use=True))
    service.snapshots.delete(CTX, kept.id)
    until(lambda: len(service.snapshots.list(CTX, Page(None, 9))) == 1)
    service.volumes.delete(CTX, dead.id)
    until(lambda: len(service.volumes.list(CTX, Page(None, 9))) == 1)
    assert dead_rows.counts(node) == [3, 2, 2]
    purging = Purger(node.assembly.database, DAY)
    assert purging.purge() == 0
    dead_rows.age(node, DAY + 1)
    assert purging.purge() == 4
    assert dead_rows.counts(node) == [1, 1, 1]
    with node.assembly.database.reading() as connection:
        fences = [write_fences.generation(connection, v.id) for v in (dead, alive)]
    assert fences == [0, 1], "alive has lost write access once"
    assert service.volumes.get(CTX, alive.id).attachments


def test_rows_that_were_deleted_just_now_have_a_total(node: Node) -> None:
    """A member who creates and deletes would fill the disk before their time is over.

    The oldest are removed, of all tables up to the same moment: what is left shows
    everything since then.
    """
    alive = node.plain_volume()
    node.services.attachments.create(CTX, NewAttachment(alive.id))
    dead_rows.add(node, MAX_DELETED + 700, DAY)
    dead_rows.spread(node, seconds=3600)
    purging = Purger(node.assembly.database, DAY)
    while purging.purge():
        pass
    assert dead_rows.counts(node) == [MAX_DELETED + 1, MAX_DELETED, MAX_DELETED + 1]
    with node.assembly.database.reading() as connection:
        youngest = sa.select(VOLUMES.c.id).order_by(VOLUMES.c.deleted_at.desc())
        kept = connection.execute(youngest.limit(1)).scalar_one()
    assert kept.endswith(f"-{MAX_DELETED + 699}"), "the youngest stays"
    assert node.services.volumes.get(CTX, alive.id).attachments


def test_a_deleted_row_keeps_nothing_that_may_be_large(node: Node) -> None:
    service, large = node.services, {"key": "value" * 200}
    volume = node.plain_volume()
    with node.assembly.database.writing() as connection:
        volumes.set_values(connection, volume.id, metadata=large, image_metadata=large)
        volumes.update(connection, volume.id, {"description": "large" * 51})
    service.attachments.delete(CTX, attach(node, volume, "a").id)
    snapshot = service.snapshots.create(CTX, NewSnapshot(volume.id, metadata=large))
    with node.assembly.database.writing() as connection:
        snapshots.update(connection, snapshot.id, {"description": "large" * 51})
    service.snapshots.delete(CTX, snapshot.id)
    until(lambda: not service.snapshots.list(CTX, Page(None, 9)))
    service.volumes.delete(CTX, volume.id)
    until(lambda: not service.volumes.list(CTX, Page(None, 9)))
    kept: list[tuple[sa.Table, str, object]] = [
        (VOLUMES, "metadata", {}),
        (VOLUMES, "display_description", None),
        (SNAPSHOTS, "display_description", None),
        (VOLUMES, "image_metadata", {}),
        (SNAPSHOTS, "metadata", {}),
        (VOLUME_ATTACHMENT, "connector", None),
        (VOLUME_ATTACHMENT, "connection_info", None),
    ]
    with node.assembly.database.reading() as connection:
        for table, column, value in kept:
            query = sa.select(table.c[column])
            assert connection.execute(query).scalar_one() == value, column


def test_a_volume_stays_while_one_of_its_rows_is_younger(node: Node) -> None:
    """A clock that was put back; SQLite would refuse it for its foreign key."""
    volume = node.plain_volume()
    node.services.attachments.delete(CTX, attach(node, volume, "a").id)
    node.services.volumes.delete(CTX, volume.id)
    until(lambda: not node.services.volumes.list(CTX, Page(None, 9)))
    dead_rows.age(node, DAY + 1)
    with node.assembly.database.writing() as connection:
        connection.execute(sa.update(VOLUME_ATTACHMENT).values(deleted_at=now()))
    assert Purger(node.assembly.database, DAY).purge() == 0
    assert dead_rows.counts(node) == [1, 0, 1]


def test_ten_thousand_rows_are_purged_without_delaying_a_writer(node: Node) -> None:
    """Each is a volume with an attachment and a snapshot."""
    dead_rows.add(node, 3_334, DAY + 1)
    alive = node.plain_volume()
    purging, waits = Purger(node.assembly.database, DAY), []
    done = threading.Event()

    def purge() -> None:
        while purging.purge():
            pass
        done.set()

    thread = threading.Thread(target=purge)
    thread.start()
    while not done.is_set():
        began = time.monotonic()
        node.services.volumes.update(CTX, alive.id, {"name": "still here"})
        waits.append(time.monotonic() - began)
    thread.join()
    assert dead_rows.counts(node) == [0, 0, 1]
    waits.sort()
    print(
        f"{len(waits)} writes beside it: {waits[len(waits) // 2] * 1000:.1f} ms, "
        f"the longest {waits[-1] * 1000:.0f} ms"
    )
    # One transaction of it, on a machine that does something else as well.
    assert waits[len(waits) * 99 // 100] < 0.25


def test_the_latest_snapshot_does_not_depend_on_the_clock(node: Node) -> None:
    volume = node.plain_volume()
    first = node.services.snapshots.create(CTX, NewSnapshot(volume.id))
    second = node.services.snapshots.create(CTX, NewSnapshot(volume.id))
    with node.assembly.database.writing() as connection:
        connection.execute(
            sa.update(SNAPSHOTS)
            .where(SNAPSHOTS.c.id == second.id)
            .values(created_at=now() - timedelta(hours=1))
        )
        found = snapshots.of_volume(connection, volume.id)
    assert [each.id for each in found] == [first.id, second.id]
    node.services.reverter.revert(CTX, volume.id, second.id)
    third = node.services.snapshots.create(CTX, NewSnapshot(volume.id))
    node.services.snapshots.delete(CTX, second.id)
    until(lambda: len(node.services.snapshots.list(CTX, Page(None, 9))) == 2)
    fourth = node.services.snapshots.create(CTX, NewSnapshot(volume.id))
    with node.assembly.database.reading() as connection:
        found = snapshots.of_volume(connection, volume.id)
        assert volumes.get(connection, volume.id) is not None
    assert [each.id for each in found] == [first.id, third.id, fourth.id]
