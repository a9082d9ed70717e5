# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work that outlives its request: steps on disks, each under way once at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait

from oslo_log import log

from agent.errors import AgentError

LOG = log.getLogger(__name__)

Step = Callable[[str], None]


class Jobs:
    """Runs the steps of operations in threads that are no request's.

    A step takes the id of its volume or snapshot, reads from the row what there
    is to do, and is repeat-safe.
    """

    def __init__(self, workers: Executor, copiers: Executor, patience: float) -> None:
        """``copiers`` are for steps that may take hours; ``patience`` is seconds."""
        self._workers, self._copiers = workers, copiers
        self._patience = patience
        self._mutex = threading.Lock()
        self._jobs: dict[tuple[Step, str], Future[None]] = {}

    def start(self, step: Step, ident: str, copies: bool = False) -> Future[None]:
        """Have it done, unless that is under way already."""
        key = (step, ident)
        with self._mutex:
            job = self._jobs.get(key)
            if job is None:
                pool = self._copiers if copies else self._workers
                job = self._jobs[key] = pool.submit(step, ident)
                job.add_done_callback(lambda _: self._jobs.pop(key, None))
            return job

    def leave(self, step: Step, ident: str) -> None:
        """Have it done; if it fails, the log says so."""
        self.start(step, ident).add_done_callback(_log_failure)

    def attempt(self, step: Step, ident: str, copies: bool = False) -> None:
        """Have it done, and wait a little: what fails by then is raised here."""
        job = self.start(step, ident, copies)
        if wait([job], self._patience).done:
            job.result()
        else:
            job.add_done_callback(_log_failure)


def _log_failure(job: Future[None]) -> None:
    error = job.exception()
    if isinstance(error, AgentError):
        LOG.error("JOB failed: %s", error)
    elif error is not None:
        LOG.error("JOB failed unexpectedly", exc_info=error)
