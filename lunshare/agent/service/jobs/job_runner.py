# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run steps that may outlive their request: each runs once at a time."""

from __future__ import annotations

import contextlib
import enum
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from oslo_log import log

from lunshare.agent import request_scope
from lunshare.agent.model.errors import AgentError, Busy
from lunshare.agent.threads.turn import waiting

LOG = log.getLogger(__name__)


class JobPool(enum.StrEnum):
    """Which threads of a backend run a step. None of them waits for the others."""

    DISKS = "disk"
    COPIES = "copy"
    ACCESS = "access"


#: How many; they are started as needed. Disks: LVM serialises their creation anyway,
#: a VG has one lock, so a few keep a backend busy. Access: fewer than may use a
#: backend, so fences that hang leave room for requests.
THREADS = {JobPool.DISKS: 8, JobPool.COPIES: 4, JobPool.ACCESS: 8}

Step = Callable[[str], None]
OnFailure = Callable[[Step, str, BaseException], None]
#: Gets the backend, the name of the step, its seconds, and whether it failed.
Measured = Callable[[str, str, float, bool], object]


class _Job:
    """One run of a step; ``next`` is the run that follows it, if any.

    Its log lines have the id of the request that asked for it first. It is
    ``stranded`` while the system refuses its pool a thread.
    """

    def __init__(self, pool: tuple[str, JobPool]) -> None:
        self.pool, self.future = pool, Future[None]()
        self.request_id = request_scope.current()
        self.started = self.stranded = False
        self.next: _Job | None = None


class JobRunner:
    """Runs the steps of operations in threads of its own.

    A step takes the id of its volume or snapshot, reads from the row what to do, and
    can be repeated. Each backend has its own threads, so one that hangs delays no
    other. Copies have their own too, because they may take hours, and fences, which may
    not wait for disks.
    """

    def __init__(
        self,
        create_wait: float,
        on_failure: OnFailure = lambda *_: None,
        measured: Measured = lambda *_: None,
    ) -> None:
        """``create_wait``: seconds that ``run_and_wait`` waits.

        ``on_failure`` is called for a step that failed when no request waited for it,
        ``measured`` for every step that has ended.
        """
        self._create_wait, self._on_failure = create_wait, on_failure
        self._measured = measured
        self._mutex, self._stopped = threading.Lock(), False
        self._pools: dict[tuple[str, JobPool], ThreadPoolExecutor] = {}
        self._jobs: dict[tuple[Step, str], _Job] = {}

    def stop(self, until: float = math.inf) -> bool:
        """Let running steps end; steps without a thread are left to a restart.

        Returns whether all had ended at ``until``, a value of time.monotonic().
        """
        with self._mutex:
            self._stopped = True
        seconds = None if until == math.inf else max(0.0, until - time.monotonic())
        stopping = threading.Thread(target=self._shut_down, name="stop", daemon=True)
        stopping.start()
        stopping.join(seconds)
        return not stopping.is_alive()

    def _shut_down(self) -> None:
        # A copy that ends starts other steps.
        for kind in (JobPool.COPIES, JobPool.DISKS, JobPool.ACCESS):
            for (_, its_kind), pool in list(self._pools.items()):
                if its_kind is kind:
                    pool.shutdown(wait=True, cancel_futures=True)

    def in_progress(self) -> Counter[tuple[str, bool]]:
        """Return how many steps each backend has that run (True) or wait (False)."""
        with self._mutex:
            return Counter((job.pool[0], job.started) for job in self._jobs.values())

    def submit(
        self, step: Step, ident: str, backend: str, pool: JobPool = JobPool.DISKS
    ) -> Future[None]:
        """Run the step on a backend, in a run that starts from now on.

        A run that has started may have read the row before the caller wrote it:
        then another run follows it. A run that has not started is shared.
        """
        key = (step, ident)
        with self._mutex:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job((backend, pool))
                self._enqueue(key, job)
            elif job.started:
                job.next = job = job.next or _Job((backend, pool))
            elif job.stranded:
                self._start_thread(job)
            return job.future

    def _enqueue(self, key: tuple[Step, str], job: _Job) -> None:
        if self._stopped:  # a restart runs the step
            job.future.cancel()
            job.future.set_running_or_notify_cancel()  # wakes who waits for it
            return
        try:
            self._pool(*job.pool).submit(self._run, key, job)
        except RuntimeError:
            # "can't start new thread": pids or memory are used up. The executor has
            # queued it already (ThreadPoolExecutor.submit, 3.11).
            job.stranded = True
            LOG.error("[%s] step waits: the system refuses a thread", job.pool[0])

    def _start_thread(self, job: _Job) -> None:
        """Let the pool of a stranded job start the thread that its queue needs."""
        with contextlib.suppress(RuntimeError):
            self._pool(*job.pool).submit(_do_nothing)
            job.stranded = False

    def _run(self, key: tuple[Step, str], job: _Job) -> None:
        with self._mutex:
            job.started = True
        with request_scope.scope(job.request_id):
            self._run_started(key, job)

    def _run_started(self, key: tuple[Step, str], job: _Job) -> None:
        error: BaseException | None = None
        began = time.monotonic()
        try:
            key[0](key[1])
        except BaseException as raised:  # for the thread that waits, as executors do
            error = raised
        failed = error is not None and not isinstance(error, Busy)
        seconds = time.monotonic() - began
        self._measured(job.pool[0], _name(key[0]), seconds, failed)
        with self._mutex:
            del self._jobs[key]
            if job.next is not None:
                self._jobs[key] = job.next
                self._enqueue(key, job.next)
        if error is None:
            job.future.set_result(None)
        else:
            job.future.set_exception(error)

    def run_later(
        self, step: Step, ident: str, backend: str, pool: JobPool = JobPool.DISKS
    ) -> Future[None]:
        """Run the step, and return at once. A failure is logged."""
        job = self.submit(step, ident, backend, pool)
        job.add_done_callback(_log_failure(step, ident, backend))
        self.report_failure(job, step, ident)
        return job

    def run_and_wait(
        self, step: Step, ident: str, backend: str, pool: JobPool = JobPool.DISKS
    ) -> None:
        """Run the step, and wait a little; an error within that time is raised.

        A later failure is logged, and so is Busy: the row still shows the operation,
        and the next reconcile runs the step again. A step that is left to a restart is
        no error either.
        """
        job = self.submit(step, ident, backend, pool)
        with waiting():
            ended = wait([job], self._create_wait).done
        if job.cancelled():
            return
        if ended and not isinstance(job.exception(), Busy):
            job.result()
        else:
            job.add_done_callback(_log_failure(step, ident, backend))
            self.report_failure(job, step, ident)

    def report_failure(self, job: Future[None], step: Step, ident: str) -> None:
        """Call ``on_failure`` if the job fails; after Busy it runs again later."""

        def report(job: Future[None]) -> None:
            error = None if job.cancelled() else job.exception()
            if error is not None and not isinstance(error, Busy):
                self._on_failure(step, ident, error)

        job.add_done_callback(report)

    def _pool(self, backend: str, kind: JobPool) -> ThreadPoolExecutor:
        key = (backend, kind)
        if key not in self._pools:
            name = f"{kind} {backend}"
            self._pools[key] = ThreadPoolExecutor(
                THREADS[kind], thread_name_prefix=name
            )
        return self._pools[key]


def _log_failure(
    step: Step, ident: str, backend: str
) -> Callable[[Future[None]], None]:
    """Return a callback that logs a failed step: of what, where, and what is next."""
    name = _name(step)

    def log_failure(job: Future[None]) -> None:
        error = None if job.cancelled() else job.exception()
        if isinstance(error, AgentError):
            LOG.error(
                "[%s] job failed: step=%s id=%s: %s; a reconcile tries it again if the"
                " status shows that the operation is in progress",
                backend,
                name,
                ident,
                error,
            )
        elif error is not None:
            LOG.error(
                "[%s] job failed unexpectedly: step=%s id=%s",
                backend,
                name,
                ident,
                exc_info=error,
            )

    return log_failure


def _do_nothing() -> None:
    """A work item for which an executor starts a thread."""


def _name(step: Step) -> str:
    return str(getattr(step, "__name__", "step"))
