# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Purge rows that were deleted long ago, or are many, without delaying any request."""

from __future__ import annotations

import time
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db import purge
from lunshare.agent.db.sqlite.engine import Database, now

LOG = log.getLogger(__name__)

# Rows in one transaction, and how long it pauses after it, in lengths of that.
_BATCH, _PAUSE = 200, 4
# Seconds that one call takes at most; the next call purges the rest.
_SECONDS = 2.0


class Purger:
    """Purges deleted rows after their time to live, or when they are too many."""

    def __init__(self, db: Database, ttl: float) -> None:
        """``ttl``: seconds."""
        self._db, self._ttl = db, timedelta(seconds=ttl)

    def purge(self) -> int:
        """Purge expired rows for up to two seconds; return how many."""
        purged = 0
        with self._db.reading() as connection:
            before = purge.oldest_kept(connection, now() - self._ttl)
        end = time.monotonic() + _SECONDS
        in_batch = _BATCH
        while in_batch == _BATCH and time.monotonic() < end:
            started = time.monotonic()
            with self._db.writing() as connection:
                in_batch = purge.purge(connection, before, _BATCH)
            purged += in_batch
            if in_batch == _BATCH:
                time.sleep(min(1.0, _PAUSE * (time.monotonic() - started)))
        if purged:
            LOG.info("[main] rows purged: rows=%s", purged)
        return purged
