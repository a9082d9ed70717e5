# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work that outlives its request: steps on disks, each under way once at most."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from oslo_log import log

from lunshare.agent.errors import AgentError
from lunshare.agent.worker_turns import waiting

LOG = log.getLogger(__name__)

# Making and removing disks: LVM does them one after the other anyway, a VG has
# one lock, so a few threads keep a backend busy. They are started as needed.
_WORKERS = 8
_COPIERS = 4

Step = Callable[[str], None]


class _Job:
    """One run of a step; ``again`` is the run that is to follow it, if any."""

    def __init__(self, pool: tuple[str, bool]) -> None:
        self.pool, self.future = pool, Future[None]()
        self.begun = False
        self.again: _Job | None = None


class JobRunner:
    """Runs the steps of operations in threads that are no request's.

    A step takes the id of its volume or snapshot, reads from the row what there
    is to do, and is repeat-safe. Each backend has threads of its own, so that one
    that hangs holds up no other; copies have theirs, for they may take hours.
    """

    def __init__(self, patience: float) -> None:
        """``patience``: seconds that ``run_and_wait`` waits."""
        self._patience = patience
        self._mutex = threading.Lock()
        self._pools: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._jobs: dict[tuple[Step, str], _Job] = {}

    def stop(self, until: float = math.inf) -> bool:
        """Let what is under way end; what waits for a thread is left to a restart.

        Whether all had ended at ``until``, a moment of time.monotonic().
        """
        left = None if until == math.inf else max(0.0, until - time.monotonic())
        ending = threading.Thread(target=self._shut_down, name="end", daemon=True)
        ending.start()
        ending.join(left)
        return not ending.is_alive()

    def _shut_down(self) -> None:
        for copies in (True, False):  # a copy that ends leaves work behind
            for (_, kind), pool in list(self._pools.items()):
                if kind is copies:
                    pool.shutdown(wait=True, cancel_futures=True)

    def submit(
        self, step: Step, ident: str, backend: str, copies: bool = False
    ) -> Future[None]:
        """Have it done on a backend by a run that begins from now on.

        A run that has begun may have read the row before the caller wrote it: then
        another one follows it. One that has not is the caller's as well.
        """
        key = (step, ident)
        with self._mutex:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job((backend, copies))
                self._submit(key, job)
            elif job.begun:
                job.again = job = job.again or _Job((backend, copies))
            return job.future

    def _submit(self, key: tuple[Step, str], job: _Job) -> None:
        try:
            self._pool(*job.pool).submit(self._run, key, job)
        except RuntimeError:  # it is shut down: a restart goes on with it
            job.future.cancel()

    def _run(self, key: tuple[Step, str], job: _Job) -> None:
        with self._mutex:
            job.begun = True
        error: BaseException | None = None
        try:
            key[0](key[1])
        except BaseException as raised:  # as an executor does, for whoever waits
            error = raised
        with self._mutex:
            del self._jobs[key]
            if job.again is not None:
                self._jobs[key] = job.again
                self._submit(key, job.again)
        if error is None:
            job.future.set_result(None)
        else:
            job.future.set_exception(error)

    def run_later(self, step: Step, ident: str, backend: str) -> None:
        """Have it done; if it fails, the log says so."""
        self.submit(step, ident, backend).add_done_callback(
            _logged(step, ident, backend)
        )

    def run_and_wait(
        self, step: Step, ident: str, backend: str, copies: bool = False
    ) -> None:
        """Have it done, and wait a little: what fails by then is raised here."""
        job = self.submit(step, ident, backend, copies)
        with waiting():
            done = wait([job], self._patience).done
        if done:
            job.result()
        else:
            job.add_done_callback(_logged(step, ident, backend))

    def _pool(self, backend: str, copies: bool) -> ThreadPoolExecutor:
        key = (backend, copies)
        if key not in self._pools:
            name = f"{'copy' if copies else 'work'} {backend}"
            count = _COPIERS if copies else _WORKERS
            self._pools[key] = ThreadPoolExecutor(count, thread_name_prefix=name)
        return self._pools[key]


def _logged(step: Step, ident: str, backend: str) -> Callable[[Future[None]], None]:
    """What says in the log that a step has failed: of what, where, and what now."""
    name = getattr(step, "__name__", "step")

    def log_failure(job: Future[None]) -> None:
        error = None if job.cancelled() else job.exception()
        if isinstance(error, AgentError):
            LOG.error(
                "[%s] JOB failed step=%s id=%s: %s; a reconcile tries it again where"
                " the status says that it is under way",
                backend,
                name,
                ident,
                error,
            )
        elif error is not None:
            LOG.error(
                "[%s] JOB failed unexpectedly step=%s id=%s",
                backend,
                name,
                ident,
                exc_info=error,
            )

    return log_failure
