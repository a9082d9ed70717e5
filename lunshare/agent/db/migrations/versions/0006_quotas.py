# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas: their limits, and what each project uses."""

import sqlalchemy as sa
from alembic import op

from lunshare.agent.db import quota_triggers

revision = "0006"
down_revision = "0005"

_TYPES = """
UPDATE snapshots SET volume_type_id = (
    SELECT volume_type_id FROM volumes WHERE volumes.id = snapshots.volume_id
)
"""

_COUNT = """
INSERT INTO quota_usage
SELECT project_id, type_id, sum(volumes), sum(gigabytes), sum(snapshots), sum(gib)
FROM (
    SELECT project_id,
        coalesce(json_extract(intent, '$.type_id'), volume_type_id, '') AS type_id,
        1 AS volumes,
        max(size, coalesce(json_extract(intent, '$.size'), 0)) AS gigabytes,
        0 AS snapshots, 0 AS gib
    FROM volumes WHERE deleted = 0
    UNION ALL
    SELECT project_id, coalesce(volume_type_id, ''), 0, 0, 1, volume_size
    FROM snapshots WHERE deleted = 0
)
GROUP BY project_id, type_id
"""


def _key(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False, primary_key=True)


def upgrade() -> None:
    op.add_column("snapshots", sa.Column("volume_type_id", sa.String(36)))
    op.execute(_TYPES)
    op.create_table(
        "quotas",
        _key("scope", 16),
        _key("name", 255),
        _key("resource", 255),
        _key("volume_type_id", 36),
        sa.Column("hard_limit", sa.Integer, nullable=False),
    )
    counts = ("volumes", "gigabytes", "snapshots", "snapshot_gigabytes")
    op.create_table(
        "quota_usage",
        _key("project_id", 255),
        _key("volume_type_id", 36),
        *(sa.Column(name, sa.Integer, nullable=False) for name in counts),
    )
    op.execute(_COUNT)
    for text in quota_triggers.statements():
        op.execute(text)
