# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The check of shares: mount what is not mounted, and find which are lost.

A share that cannot be mounted or does not answer is lost: nothing of it can be used,
and nothing on it is at risk. Any other problem (another file system in its place, local
locks, a stale share that is in use) fails the check whatever the other shares are.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DriverError,
    Misconfigured,
    StorageLost,
)
from lunshare.drivers.nfs.mount_commands import MountCommands, no_answer
from lunshare.drivers.nfs.share_files import ShareFiles

_MOST_AT_ONCE = 16


class ShareChecks:
    """Checks the shares of one backend."""

    def __init__(self, mounting: MountCommands) -> None:
        self._mounting = mounting

    def run(self, shares: Sequence[ShareFiles]) -> None:
        """Check all of them, and note which are lost.

        One that fails does not stop the others, and one that hangs does not delay them.

        :raises DriverError: one of them is not what it should be, or all are lost. None
            counts as lost then.
        """
        results = self._check_each(shares)
        lost = [
            result if isinstance(result, StorageLost) else None for result in results
        ]
        problems = [
            result
            for result in results
            if result and not isinstance(result, StorageLost)
        ]
        if all(lost):
            problems += filter(None, lost)
        for files, why in zip(shares, lost, strict=True):
            files.lost = None if problems else why
        if problems:
            raise problems[0]

    def _check_each(self, shares: Sequence[ShareFiles]) -> list[DriverError | None]:
        """Return the error of each share; None for one that can be used.

        All at once: a check of more than 30 s means that the backend is down.
        """
        if len(shares) == 1:
            return [self._error_of(shares[0])]
        with ThreadPoolExecutor(min(len(shares), _MOST_AT_ONCE)) as threads:
            jobs = [
                # With the id of the request, for the log of the helper.
                threads.submit(contextvars.copy_context().run, self._error_of, share)
                for share in shares
            ]
        return [job.result() for job in jobs]

    def _error_of(self, files: ShareFiles) -> DriverError | None:
        try:
            self._check(files)
        except DriverError as error:
            return error
        return None

    def _check(self, files: ShareFiles) -> None:
        state = self._mount_state(files)
        if state["trouble"] == "stale":
            self._unmount_stale(files)
            state = self._mount_state(files)
        if not state["source"]:
            self._mounting.create_mount_point(files.share)
            self._mounting.mount(files.share)
            state = self._mount_state(files)
        _require_usable(files, state)

    def _mount_state(self, files: ShareFiles) -> Mapping[str, str]:
        try:
            return files.mount_state()
        except DeadlineExceeded as error:
            raise no_answer(files.share, error.seconds) from error

    def _unmount_stale(self, files: ShareFiles) -> None:
        """Unmount a stale share, so that it can be mounted again."""
        with contextlib.suppress(CommandFailed, DeadlineExceeded):
            # The caller reads the state again. The command fails while something uses
            # the share; the share is then still stale. It may wait long for a server
            # that does not know its files any more (6.12: umount.nfs4 sleeps in the
            # kernel), but then nothing is mounted there any more.
            self._mounting.unmount(files.share)


def _require_usable(files: ShareFiles, state: Mapping[str, str]) -> None:
    share, point = files.share, files.point
    if state["source"] != share.source:
        what = "another file system" if state["source"] else "nothing"
        raise Misconfigured(
            f"{what} is mounted in place of a share: {state['source']} at {point}, not"
            f" {share.source}",
            f"stop what uses it, and umount {point}",
        )
    if state["trouble"]:
        what = f"a share is {state['trouble']}: {share.source} at {point}"
        raise Misconfigured(what, state["remedy"])
