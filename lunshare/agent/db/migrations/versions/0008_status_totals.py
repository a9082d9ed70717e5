# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Totals of volumes and attachments by status, for metrics."""

import sqlalchemy as sa
from alembic import op

from lunshare.agent.db import status_triggers

revision = "0008"
down_revision = "0007"


def _key(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False, primary_key=True)


def upgrade() -> None:
    op.create_table(
        "status_totals",
        _key("kind", 16),
        _key("place", 255),
        _key("status", 255),
        sa.Column("count", sa.Integer, nullable=False),
    )
    for text in (*status_triggers.first_count(), *status_triggers.statements()):
        op.execute(text)
