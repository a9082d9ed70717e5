# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs on LVM are bound by its commands: their statements are built once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lunshare.agent.model.records import NewSnapshot, NewVolume
from tests.stands.node import CTX, Node
from tests.stands.waiting import until


def test_creates_snapshots_and_deletes_use_prepared_statements(tmp_path: Path) -> None:
    node = Node(tmp_path).start()
    built: list[str] = []

    def note(*event: Any) -> None:
        built.append(event[2])

    engine = node.assembly.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    services = node.services
    try:
        volume = services.volumes.create(CTX, NewVolume(size=1))
        snapshot = services.snapshots.create(CTX, NewSnapshot(volume_id=volume.id))
        services.snapshots.delete(CTX, snapshot.id)
        until(lambda: not node.assembly.jobs.in_progress())
        services.volumes.delete(CTX, volume.id)
        until(lambda: not node.assembly.jobs.in_progress())
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
        node.close()
    assert built == []
