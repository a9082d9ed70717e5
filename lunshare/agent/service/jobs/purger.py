# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Purge rows that were deleted long ago, without delaying any request."""

from __future__ import annotations

import time
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db.purge import purge as purge_rows
from lunshare.agent.db.sqlite.engine import Database, now

LOG = log.getLogger(__name__)

# Rows in one transaction, and how long it pauses after it, in lengths of that.
_BATCH, _PAUSE = 200, 4
# Seconds that one call takes at most; the next call purges the rest.
_SECONDS = 2.0


class Purger:
    """Purges deleted rows after their time to live."""

    def __init__(self, db: Database, ttl: float) -> None:
        """``ttl``: seconds."""
        self._db, self._ttl = db, timedelta(seconds=ttl)

    def purge(self) -> int:
        """Purge expired rows for up to two seconds; return how many."""
        before, purged = now() - self._ttl, 0
        end = time.monotonic() + _SECONDS
        in_batch = _BATCH
        while in_batch == _BATCH and time.monotonic() < end:
            started = time.monotonic()
            with self._db.writing() as connection:
                in_batch = purge_rows(connection, before, _BATCH)
            purged += in_batch
            if in_batch == _BATCH:
                time.sleep(min(1.0, _PAUSE * (time.monotonic() - started)))
        if purged:
            LOG.info("[main] rows purged: rows=%s", purged)
        return purged
