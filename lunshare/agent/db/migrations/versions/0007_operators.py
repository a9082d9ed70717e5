# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Access to types, default types, QoS specs, frozen backends."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def _key(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False, primary_key=True)


def upgrade() -> None:
    op.create_table(
        "volume_type_projects", _key("volume_type_id", 36), _key("project_id", 255)
    )
    op.create_table(
        "default_volume_types",
        _key("project_id", 255),
        sa.Column("volume_type_id", sa.String(36), nullable=False),
    )
    op.create_table(
        "qos_specs",
        _key("id", 36),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("consumer", sa.String(16), nullable=False),
        sa.Column("specs", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime),
    )
    op.add_column("volume_types", sa.Column("qos_specs_id", sa.String(36)))
    frozen = sa.Column("frozen", sa.Boolean, nullable=False, server_default="0")
    op.add_column("services", frozen)
