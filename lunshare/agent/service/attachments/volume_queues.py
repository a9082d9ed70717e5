# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work on attachments in the background, in one thread for each volume.

With a thread for each attachment, those of one volume that hangs wait for its lock in
all threads there are, and no other volume has one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner
from lunshare.agent.volume_locks import VolumeLocks

_Item = tuple[str, Future[None]]


class VolumeQueues:
    """A queue of attachments for each volume; ``work`` gets their ids."""

    def __init__(
        self, locks: VolumeLocks, jobs: JobRunner, work: Callable[[str], None]
    ) -> None:
        """``work`` runs with the lock of the volume, and can be repeated."""
        self._locks, self._jobs, self._work = locks, jobs, work
        self._mutex = threading.Lock()
        self._items: dict[str, list[_Item]] = {}

    def add(
        self, volume_id: str, backend: str, attachment_ids: Iterable[str]
    ) -> dict[str, Future[None]]:
        """Let a job work on these; return for each when that is done, or its error."""
        futures = {ident: Future[None]() for ident in attachment_ids}
        with self._mutex:
            self._items.setdefault(volume_id, []).extend(futures.items())
        job = self._jobs.run_later(self.run, volume_id, backend, JobPool.ACCESS)
        job.add_done_callback(lambda job: self._give_up(volume_id, job))
        return futures

    def run(self, volume_id: str) -> None:
        """Work on all that wait for it now. A job runs it; another does what follows.

        :raises AgentError: of the first one that has failed.
        """
        items, errors = self._take(volume_id), []
        try:
            with self._locks.volume(volume_id, "a fence"):
                for ident, future in items:
                    try:
                        self._work(ident)
                        future.set_result(None)
                    except Exception as error:
                        errors.append(error)
                        future.set_exception(error)
        except BaseException as error:  # for the threads that wait, as JobRunner
            for _, future in items:
                if not future.done():
                    future.set_exception(error)
            raise
        if errors:
            raise errors[0]

    def _give_up(self, volume_id: str, job: Future[None]) -> None:
        """Wake who waits for a job that a restart will repeat."""
        for _, future in self._take(volume_id) if job.cancelled() else ():
            future.cancel()
            future.set_running_or_notify_cancel()

    def _take(self, volume_id: str) -> list[_Item]:
        with self._mutex:
            return self._items.pop(volume_id, [])
