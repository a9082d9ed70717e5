# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fill a node's database with attached volumes, in one transaction.

Over the API 40,000 creates would need minutes of commits. So the rows are
written by lunshare.agent.db's own functions, while the daemon runs: the fake target,
which lives in the daemon's memory, does not have them.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from pathlib import Path

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db import snapshots as snapshot_rows
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.records import Attachment, Mode, Snapshot, Volume
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus

_HOSTS = 3


def fill(
    state: Path, count: int, backend: str = "fake", project: str = "default"
) -> list[str]:
    """Write ``count`` volumes, each attached to three hosts; their ids."""
    database = Database(f"sqlite:///{state}/lunshare.sqlite", connections=1)
    ids = [str(uuid.uuid4()) for _ in range(count)]
    moment = now()
    with database.writing() as connection:
        for number, volume_id in enumerate(ids):
            volume = Volume(
                id=volume_id,
                size=1,
                own_status=VolumeStatus.AVAILABLE,
                backend=backend,
                project_id=project,
                user_id="admin",
                name=f"volume {number}",
                multiattach=True,
                created_at=moment + timedelta(microseconds=number),
                updated_at=moment,
            )
            volumes.insert(connection, volume)
            for host in range(_HOSTS):
                attachments.insert(
                    connection, _attached(volume_id, f"host-{host}", moment)
                )
    database.close()
    return ids


def snapshots(state: Path, volumes: list[str]) -> None:
    """Write one snapshot of each of these volumes, in rows only."""
    database = Database(f"sqlite:///{state}/lunshare.sqlite", connections=1)
    with database.writing() as connection:
        for volume_id in volumes:
            snapshot = Snapshot(
                id=str(uuid.uuid4()),
                volume_id=volume_id,
                size=1,
                status=SnapshotStatus.AVAILABLE,
                project_id="default",
                user_id="admin",
            )
            snapshot_rows.insert(connection, snapshot)
    database.close()


def hosts(state: Path, volume_id: str, count: int) -> None:
    """Attach so many hosts to a volume, in rows only."""
    moment = now()
    database = Database(f"sqlite:///{state}/lunshare.sqlite", connections=1)
    with database.writing() as connection:
        for host in range(count):
            attachments.insert(connection, _attached(volume_id, f"many-{host}", moment))
    database.close()


def _attached(volume_id: str, host: str, moment: datetime) -> Attachment:
    initiator = f"iqn.1994-05.com.example:{host}"
    info = {
        "driver_volume_type": "iscsi",
        "target_portal": "127.0.0.1:3260",
        "target_iqn": f"iqn.2026-11.io.lunshare:volume-{volume_id}",
        "target_lun": 0,
        "access_mode": "ro",
    }
    return Attachment(
        id=str(uuid.uuid4()),
        volume_id=volume_id,
        status=AttachStatus.ATTACHED,
        mode=Mode.RO,
        instance_uuid=str(uuid.uuid4()),
        attached_host=host,
        mountpoint="/dev/vdb",
        attach_time=moment,
        connector={"initiator": initiator, "host": host},
        connection_info=info,
        initiator=initiator,
        auth_username="u" * 20,
        auth_password="p" * 16,
        created_at=moment,
        updated_at=moment,
    )
