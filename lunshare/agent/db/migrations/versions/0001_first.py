# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The first schema: volumes, attachments, types, services."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "volumes",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("display_name", sa.String(255)),
        sa.Column("display_description", sa.String(255)),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("status", sa.String(255), nullable=False),
        sa.Column("status_reason", sa.String(1024)),
        sa.Column("backend", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("multiattach", sa.Boolean, nullable=False),
        sa.Column("bootable", sa.Boolean, nullable=False),
        sa.Column("volume_type_id", sa.String(36)),
        sa.Column("metadata", sa.JSON, nullable=False),
        *_times(),
    )
    op.create_table(
        "volume_attachment",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column(
            "volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False
        ),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("attached_host", sa.String(255)),
        sa.Column("mountpoint", sa.String(255)),
        sa.Column("attach_time", sa.DateTime),
        sa.Column("detach_time", sa.DateTime),
        sa.Column("attach_status", sa.String(255), nullable=False),
        sa.Column("attach_mode", sa.String(2)),
        sa.Column("connector", sa.Text),
        sa.Column("connection_info", sa.Text),
        sa.Column("initiator", sa.String(255)),
        sa.Column("leaving", sa.String(255)),
        sa.Column("auth_username", sa.String(255)),
        sa.Column("auth_password", sa.String(255)),
        *_times(),
    )
    op.create_table(
        "volume_types",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("description", sa.String(255)),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime),
        sa.Column("updated_at", sa.DateTime),
    )
    op.create_table(
        "volume_type_extra_specs",
        sa.Column(
            "volume_type_id",
            sa.String(36),
            sa.ForeignKey("volume_types.id"),
            primary_key=True,
        ),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("value", sa.String(255), nullable=False),
    )
    op.create_table(
        "services",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("binary", sa.String(255), primary_key=True),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.String(255)),
        sa.Column("updated_at", sa.DateTime),
    )
    for table, name, columns in (
        ("volumes", "volumes_page", ["created_at", "id"]),
        ("volumes", "volumes_project_page", ["project_id", "created_at", "id"]),
        ("volumes", "volumes_backend", ["backend", "status"]),
        ("volumes", "volumes_type", ["volume_type_id"]),
        ("volume_attachment", "attachments_of_initiator", ["volume_id", "initiator"]),
        ("volume_attachment", "attachments_page", ["created_at", "id"]),
        ("volume_attachment", "attachments_of_instance", ["instance_uuid"]),
        ("volume_attachment", "attachments_of_volume", ["volume_id", "attach_status"]),
    ):
        there = sa.column("deleted") == sa.false()
        op.create_index(name, table, columns, sqlite_where=there)


def _times() -> list[sa.Column[Any]]:
    return [
        sa.Column("created_at", sa.DateTime),
        sa.Column("updated_at", sa.DateTime),
        sa.Column("deleted_at", sa.DateTime),
        sa.Column("deleted", sa.Boolean, nullable=False),
    ]
