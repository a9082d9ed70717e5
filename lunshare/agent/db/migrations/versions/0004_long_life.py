# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The order of snapshots, why an attachment failed, and purged rows."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

# The snapshots of a volume are in the order in which their rows were written, not in
# that of the clock.
_ORDER = """
UPDATE snapshots SET sequence = (
    SELECT count(*) FROM snapshots AS other
    WHERE other.volume_id = snapshots.volume_id AND other.rowid <= snapshots.rowid
)
"""


def upgrade() -> None:
    order = sa.Column("sequence", sa.Integer, nullable=False, server_default="0")
    op.add_column("snapshots", order)
    op.execute(_ORDER)
    op.drop_index("snapshots_of_volume")
    columns = ["volume_id", "deleted", "sequence"]
    op.create_index("snapshots_of_volume", "snapshots", columns)
    table = "volume_attachment"
    answered = sa.Column("answered", sa.Boolean, nullable=False, server_default="1")
    op.add_column(table, sa.Column("status_reason", sa.String(1024)))
    op.add_column(table, answered)
    op.drop_index("attachments_of_volume")
    columns = ["volume_id", "deleted", "attach_status"]
    op.create_index("attachments_of_volume", table, columns)
    made = sa.text("answered = 0")
    unanswered = "attachments_unanswered"
    op.create_index(unanswered, table, ["volume_id"], sqlite_where=made)
    gone = sa.text("deleted = 1")
    for name, of in (
        ("volumes_gone", "volumes"),
        ("snapshots_gone", "snapshots"),
        ("attachments_gone", table),
    ):
        op.create_index(name, of, ["deleted_at"], sqlite_where=gone)
