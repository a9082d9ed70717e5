# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The intent of a clone names its values by what they are."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_NAMES = {"moment": "source_size", "kept": "has_snapshot"}
_VOLUMES = sa.table(
    "volumes",
    sa.column("id", sa.String),
    sa.column("intent", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    connection = op.get_bind()
    found = sa.select(_VOLUMES).where(_VOLUMES.c.intent.is_not(None))
    for row in connection.execute(found).all():
        intent = {_NAMES.get(key, key): value for key, value in row.intent.items()}
        if intent != row.intent:
            change = sa.update(_VOLUMES).where(_VOLUMES.c.id == row.id)
            connection.execute(change.values(intent=intent))
