# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Transfers, statuses that an administrator set, and the old actions of volumes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def _text(name: str, nullable: bool = True) -> sa.Column[str]:
    return sa.Column(name, sa.String(255), nullable=nullable)


def upgrade() -> None:
    op.add_column("volumes", sa.Column("readonly", sa.Boolean))
    op.add_column(
        "volumes",
        sa.Column("image_metadata", sa.JSON, nullable=False, server_default="{}"),
    )
    op.add_column("volumes", _text("reset_from"))
    op.add_column("snapshots", _text("reset_from"))
    op.add_column("snapshots", _text("progress"))
    op.add_column("volume_attachment", _text("legacy"))
    announced = sa.Column("announced", sa.Boolean, nullable=False, server_default="0")
    op.add_column("volume_attachment", announced)
    op.create_table(
        "transfers",
        sa.Column("id", sa.String(36), primary_key=True, nullable=False),
        sa.Column(
            "volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False
        ),
        _text("display_name"),
        _text("salt", nullable=False),
        _text("key_hash", nullable=False),
        sa.Column("no_snapshots", sa.Boolean, nullable=False),
        _text("source_project_id", nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )
    op.create_index("transfers_of_volume", "transfers", ["volume_id"], unique=True)
