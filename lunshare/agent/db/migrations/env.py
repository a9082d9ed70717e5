# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Alembic loads this by name, from lunshare.agent.db.migrations.upgrade."""

from alembic import context

with context.begin_transaction():
    context.run_migrations()
