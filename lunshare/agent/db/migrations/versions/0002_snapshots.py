# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, the source of a volume, and work in progress."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for column in (
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("source_volid", sa.String(36)),
        sa.Column("intent", sa.JSON),
        sa.Column("leaving", sa.String(255)),
        sa.Column("migration_status", sa.String(255)),
    ):
        op.add_column("volumes", column)
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column(
            "volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False
        ),
        sa.Column("display_name", sa.String(255)),
        sa.Column("display_description", sa.String(255)),
        sa.Column("volume_size", sa.Integer, nullable=False),
        sa.Column("status", sa.String(255), nullable=False),
        sa.Column("status_reason", sa.String(1024)),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime),
        sa.Column("updated_at", sa.DateTime),
        sa.Column("deleted_at", sa.DateTime),
        sa.Column("deleted", sa.Boolean, nullable=False),
    )
    for table, name, columns in (
        ("volumes", "volumes_of_snapshot", ["snapshot_id"]),
        ("volumes", "volumes_of_source", ["source_volid"]),
        ("snapshots", "snapshots_page", ["created_at", "id"]),
        ("snapshots", "snapshots_project_page", ["project_id", "created_at", "id"]),
        ("snapshots", "snapshots_of_volume", ["volume_id", "created_at", "id"]),
    ):
        there = sa.column("deleted") == sa.false()
        op.create_index(name, table, columns, sqlite_where=there)
