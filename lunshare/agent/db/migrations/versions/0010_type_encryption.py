# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How hosts would encrypt the volumes of a type."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "type_encryption",
        sa.Column(
            "volume_type_id",
            sa.String(36),
            sa.ForeignKey("volume_types.id"),
            primary_key=True,
            nullable=False,
        ),
        sa.Column("encryption_id", sa.String(36), nullable=False),
        sa.Column("provider", sa.String(255), nullable=False),
        sa.Column("control_location", sa.String(16), nullable=False),
        sa.Column("cipher", sa.String(255)),
        sa.Column("key_size", sa.Integer),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime),
    )
