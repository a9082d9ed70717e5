# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Alembic loads this by name; lunshare.agent.db.migrations.upgrade has set everything up."""

from alembic import context

with context.begin_transaction():
    context.run_migrations()
