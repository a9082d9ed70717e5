# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs on the files of NFS shares. Each ends at its deadline, whatever hangs.

Work on a share runs in a thread of its own (helper/named_locks). When the server does
not answer, the client gets DeadlineExceeded, and the file stays locked until the kernel
ends the thread's request. The number of threads that wait for one share is limited.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lunshare.drivers.errors import (
    DeadlineExceeded,
    DriverError,
    HelperBusy,
    Misconfigured,
    NoSpace,
    Unsupported,
)
from lunshare.drivers.protocol import nfs_names
from lunshare.helper import verification
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.mounts import Mount, Mounts, need_listed
from lunshare.helper.named_locks import Locks, TimedLock
from lunshare.helper.nfs import files, open_files, share_requests
from lunshare.helper.nfs.files import OpenShare
from lunshare.helper.nfs.share_requests import ForeignFile
from lunshare.helper.served import PATH, Served
from lunshare.helper.verbs import ChangeVerb, IsGone, LongVerb, Report, never_gone

#: How many operations on one share may be in progress. More than a daemon starts at
#: once, and far fewer than the helper's connections.
MAX_WAITING = 32

_PROBE = ".lunshare-probe"

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

#: Why a share is unavailable, by the error of its server.
_TROUBLE = {
    errno.EROFS: "read-only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ESTALE: "stale",
}
_REMEDY = {
    "read-only": "export and mount it read-write",
    "denied": "export it with no_root_squash, or give the user that its server maps"
    " root to write permission in its directory",
    # XFS that a failing disk has shut down is stale, too (Linux 6.12, knfsd).
    "stale": "repair the server if its filesystem has failed; if another one is there"
    " now, stop what uses the share and umount it: the next check mounts it again",
}

Verb = Callable[[Mapping[str, Any], float], Any] | ChangeVerb | LongVerb
Step = Callable[[OpenShare, Any], Any]


class ShareVerbs:
    """The verbs on all shares of the node; lunshare.drivers.nfs calls them.

    :raises Misconfigured: the share is not mounted, stale, or not writable.
    :raises NoSpace: the share is full; no new file is left.
    :raises DeadlineExceeded: the server does not answer; the work may still be done.
    """

    def __init__(
        self,
        mounts: Mounts,
        served: Served,
        is_exported: open_files.IsExported,
        disk_locks: DiskLocks | None = None,
    ) -> None:
        self._mounts, self._served, self._locks = mounts, served, Locks(disk_locks)
        self._is_exported = is_exported
        self._waiting: Counter[str] = Counter()
        self._mutex = threading.Lock()

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        table: dict[str, tuple[Callable[..., Any], Step]] = {
            "share.capacity": (share_requests.SHARE, files.capacity),
            "share.list": (share_requests.SHARE, files.list_files),
            "share.find": (share_requests.NAMED, files.find),
        }
        unmanage = self._verb("share.unmanage", share_requests.NAMED, files.unmanage)
        long: dict[str, tuple[Callable[..., Any], Step]] = {
            "share.create": (share_requests.CREATE, files.create),
            "share.extend": (share_requests.EXTEND, files.extend),
            "share.copy": (share_requests.COPY, files.copy),
            "share.manage": (share_requests.MANAGE, files.manage),
            "share.delete": (share_requests.NAMED, files.delete),
        }
        return {
            "share.check": self._check,
            "share.unmanage": ChangeVerb(unmanage),
            **{name: self._verb(name, *parts) for name, parts in table.items()},
            **{
                name: LongVerb(self._verb(name, *parts)) for name, parts in long.items()
            },
        }

    def _verb(
        self, verb: str, form: Callable[..., Any], step: Step
    ) -> Callable[..., Any]:
        def ask(
            given: Mapping[str, Any],
            seconds: float,
            report: Report | None = None,
            is_gone: IsGone = never_gone,
        ) -> Any:
            request = form("", given)
            self._need_served(request)
            mount = self._mounts.find(request.point)
            if mount is None:
                raise Misconfigured(
                    f"a share is not mounted: {request.point}",
                    "the next check of its backend mounts it, or reports why it cannot",
                )
            need_listed(mount, self._served)
            what = f"{verb} {request.name}".strip()
            name, todo = request.name or verb, _step(step, request)
            with _translated_errors(mount, request.name):
                return self._run_in_thread(
                    mount, name, what, (seconds, report), todo, is_gone=is_gone
                )

        return ask

    def _check(self, given: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return what is mounted there, and why it is not writable (a probe)."""
        request = share_requests.SHARE("", given)
        self._need_served(request)
        mount = self._mounts.find(request.point)
        if mount is None:
            return {"source": "", "trouble": ""}
        if not self._served.serves_share(mount.source):
            return {
                "source": mount.source,
                "trouble": "not served",
                "remedy": f"add it to nfs_shares in {PATH}, and restart the helper",
            }
        if mount.hides_locks:
            return {
                "source": mount.source,
                "trouble": "mounted with local locks",
                "remedy": "umount it; the next check mounts it without nolock",
            }
        try:
            self._run_in_thread(mount, _PROBE, "share.check", (seconds, None), _probe)
            trouble = ""
        except OSError as error:
            if error.errno not in {*_TROUBLE, *_FULL}:
                raise DriverError(
                    f"a share fails: {error.strerror}; {mount.source}"
                ) from None
            trouble = _TROUBLE.get(error.errno, "")  # a full share can still be used
        return {
            "source": mount.source,
            "trouble": trouble,
            "remedy": _REMEDY.get(trouble, ""),
        }

    def _need_served(self, asked: Any) -> None:
        self._served.need_mount_point(asked.point)
        if self._served.manage or not isinstance(asked, ForeignFile):
            return
        if not nfs_names.is_unmanaged(asked.reference):
            what = "managing a foreign file"
            raise Unsupported(what, f"set manage_foreign_disks = yes in {PATH}")

    def _run_in_thread(
        self,
        mount: Mount,
        name: str,
        what: str,
        time: tuple[float, Report | None],
        step: Callable[[OpenShare], Any],
        *,
        is_gone: IsGone = never_gone,
    ) -> Any:
        """Run the step in a thread of its own, for at most so many seconds.

        With a report the seconds count from the last progress.
        """
        answers: list[Any] = []

        def run(lock: TimedLock) -> None:
            try:
                with self._mounts.enter(mount) as directory:
                    share = OpenShare(
                        directory,
                        mount,
                        self._mounts,
                        self._is_exported,
                        lock.progress(what),
                    )
                    answers.append(step(share))
            finally:
                self._count(mount, -1)

        (seconds, report), where = time, f"{mount.point}/{name}"
        with self._locks.hold(
            where, seconds, mount.point, report, what, is_gone=is_gone
        ) as lock:
            self._admit(mount, what, seconds)
            try:
                lock.run_step(f"{what} on {mount.source}", run, lock)
            except HelperBusy:  # it was not started
                self._count(mount, -1)
                raise
        return answers[0]

    def _admit(self, mount: Mount, what: str, seconds: float) -> None:
        with self._mutex:
            if self._waiting[mount.point] >= MAX_WAITING:
                many = f"{what}, behind {MAX_WAITING} others of its share,"
                raise DeadlineExceeded(many, seconds)
            self._waiting[mount.point] += 1

    def _count(self, mount: Mount, change: int) -> None:
        with self._mutex:
            self._waiting[mount.point] += change


def _step(step: Step, asked: Any) -> Callable[[OpenShare], Any]:
    return lambda share: step(share, asked)


def _probe(share: OpenShare) -> None:
    """Write a file and remove it: only a write shows that a share is read-only."""
    file = open_files.open_probe(share.directory, _PROBE)
    try:
        verification.write(file, memoryview(b"lunshare"), 0)
        os.fsync(file)
    finally:
        os.close(file)
        # Another node with the same share may have removed it already.
        if files.exists(share, _PROBE):
            os.unlink(_PROBE, dir_fd=share.directory)


@contextmanager
def _translated_errors(mount: Mount, name: str) -> Iterator[None]:
    """Raise the kernel's and the server's errors as DriverErrors."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise NoSpace(mount.source, f"its server reports: {why}") from None
        trouble = _TROUBLE.get(error.errno or 0)
        if trouble:
            what = f"a share is {trouble} ({why}): {mount.source}"
            raise Misconfigured(what, _REMEDY[trouble]) from None
        raise DriverError(f"a share fails: {why}; {name} of {mount.source}") from None
