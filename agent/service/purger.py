# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Forget what was deleted long ago, without a pause that any request would feel."""

from __future__ import annotations

import time
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db.engine import Database, now
from lunshare.agent.db.purge import purge as purge_rows

LOG = log.getLogger(__name__)

# Rows in one transaction, and how long it rests after it, in lengths of that.
_BATCH, _REST = 200, 4
# Seconds that one call takes at most; what is left goes with the next.
_SECONDS = 2.0


class Purger:
    """Takes deleted rows from the database when they have been kept long enough."""

    def __init__(self, db: Database, keep: float) -> None:
        """``keep``: seconds."""
        self._db, self._keep = db, timedelta(seconds=keep)

    def purge(self) -> int:
        """Take what is due, for a moment; how many rows there were."""
        before, found = now() - self._keep, 0
        end = time.monotonic() + _SECONDS
        taken = _BATCH
        while taken == _BATCH and time.monotonic() < end:
            began = time.monotonic()
            with self._db.writing() as connection:
                taken = purge_rows(connection, before, _BATCH)
            found += taken
            if taken == _BATCH:
                time.sleep(min(1.0, _REST * (time.monotonic() - began)))
        if found:
            LOG.info("[main] PURGED rows=%s", found)
        return found
