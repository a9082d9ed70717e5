# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command as root, if a line in rootwrap.d allows it. Never a shell.

``rules`` finds that line. A command that changes a volume group is never killed
(``lvm.changes``). A query is killed at its deadline. No change of a disk starts while
an earlier change of it runs (``disk_locks``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

from lunshare.drivers.errors import CommandFailed, DeadlineExceeded
from lunshare.helper import processes
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.lvm import changes, lvm_config
from lunshare.helper.mounts import KERNEL, Mounts
from lunshare.helper.nfs.mount_points import MountPoints
from lunshare.helper.rules import Rules
from lunshare.helper.served import NOTHING, Served
from lunshare.helper.thread_limits import ThreadLimit
from lunshare.helper.verbs import IsGone, never_gone

LOG = logging.getLogger(__name__)

#: After SIGKILL a process ends well within this, unless it is stuck in the kernel.
_KILL_SECONDS = 0.5

#: When this many commands hang in the kernel, no further one is started; or when that
#: many do on one volume group or mount point, none on that one. The kernel may not let
#: them end for hours, and each health check of a backend leaves one.
MAX_HUNG, MAX_HUNG_EACH = 64, 16

#: How many queries and mounts run at once, in total and on one of these. A report on
#: thousands of volumes needs some 50 MiB, and changes share the memory of the unit.
MAX_RUNNING, MAX_RUNNING_EACH = 64, 16


class Commands:
    """The commands that the filter files in ``directory`` allow on what is served.

    A change holds the lock of its disk in ``disk_locks``.

    :raises Misconfigured: a user other than root could change the rules.
    """

    def __init__(
        self,
        directory: str,
        exec_dirs: Sequence[str],
        served: Served = NOTHING,
        disk_locks: DiskLocks | None = None,
        mounts: Mounts = KERNEL,
    ) -> None:
        self._rules = Rules(directory, exec_dirs, served)
        # LVM warns about every open descriptor that it inherits; the helper never
        # reads these warnings.
        self._environment = {
            "LC_ALL": "C",
            "PATH": ":".join(exec_dirs),
            "LVM_SUPPRESS_FD_WARNINGS": "1",
        }
        self._changes = changes.ChangeRunner(disk_locks, self._environment)
        self._points = MountPoints(served.base, mounts)
        self._running = ThreadLimit(MAX_RUNNING, MAX_RUNNING_EACH)
        self._unreaped: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._rules)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that would be executed for ``argv``.

        :raises HelperRefused: no filter allows it, or its program is missing.
        :raises Unsupported: helper.conf does not allow managing foreign disks.
        """
        return self._rules.command(argv)

    def run(
        self, argv: Sequence[str], timeout: float, is_gone: IsGone = never_gone
    ) -> str:
        """Run it for at most ``timeout`` seconds and return its stdout.

        :raises HelperRefused: see ``command``.
        :raises NoSpace: LVM found no space for what it should have created.
        :raises CommandFailed: its exit code is not 0 for another reason.
        :raises DeadlineExceeded: it was killed, or it hangs in the kernel; or it
            changes a volume group, and continues; or an earlier command on its disk
            still runs, or the client is gone, and this one was not started.
        :raises HelperBusy: too many run already, and this one was not started.
        """
        command = self.command(argv)
        if changes.is_change(argv) or changes.is_query(argv):
            command = lvm_config.pinned(command)
        started = time.monotonic()
        code: int | None = None
        try:
            outcome = self._outcome(command, argv, timeout, is_gone)
            code = outcome.code
        finally:
            LOG.info(
                "run %s seconds=%.3f exit=%s",
                shlex.join(argv),
                time.monotonic() - started,
                "none" if code is None else code,
            )
        if code:
            raise changes.failure(argv, code, outcome.err)
        return outcome.out

    def _outcome(
        self, command: list[str], argv: Sequence[str], timeout: float, is_gone: IsGone
    ) -> changes.Outcome:
        if changes.is_change(argv):
            return self._changes.run(command, argv, timeout, is_gone)
        deadline = time.monotonic() + timeout
        if changes.is_query(argv):
            self._changes.wait(argv, timeout)
        with self._turn(argv, deadline):
            if is_gone():
                raise DeadlineExceeded(shlex.join(argv), timeout)
            self._need_few_hung(argv)
            process = processes.start(
                command,
                self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            return self._finish(process, argv, timeout, deadline)

    @contextlib.contextmanager
    def _turn(self, argv: Sequence[str], deadline: float) -> Iterator[None]:
        """Run it in the block, while few others do."""
        about = _about(argv)
        self._running.enter(about, _left(deadline))
        try:
            with self._points.change(argv, _left(deadline)):
                yield
        finally:
            self._running.leave(about)

    def _need_few_hung(self, argv: Sequence[str]) -> None:
        """:raises CommandFailed: too many hang, in total or on what this is about."""
        about = _about(argv)
        with self._mutex:
            self._unreaped = [
                entry for entry in self._unreaped if entry[1].poll() is None
            ]
            hung = [where for where, _ in self._unreaped]
        if len(hung) >= MAX_HUNG:
            raise _too_many(argv, f"{len(hung)} commands")
        if (many := hung.count(about)) >= MAX_HUNG_EACH:
            raise _too_many(argv, f"{many} commands on {about}")

    def _finish(
        self,
        process: subprocess.Popen[bytes],
        argv: Sequence[str],
        timeout: float,
        deadline: float,
    ) -> changes.Outcome:
        try:
            pipes = process.stdout, process.stderr
            out, err = processes.collect(*pipes, _left(deadline))
            process.wait(_left(deadline))
        except (TimeoutError, subprocess.TimeoutExpired):
            self._kill(process, _about(argv))
            raise DeadlineExceeded(shlex.join(argv), timeout) from None
        except processes.TooMuch:
            self._kill(process, _about(argv))
            why = f"it has written more than {processes.MAX_OUTPUT} bytes"
            raise CommandFailed(tuple(argv), 126, why) from None
        finally:
            _close_pipes(process)
        return changes.Outcome(process.returncode, out, err)

    def _kill(self, process: subprocess.Popen[bytes], about: str) -> None:
        """Kill the process group. One that hangs is reaped later."""
        os.killpg(process.pid, signal.SIGKILL)
        _close_pipes(process)
        try:
            process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            LOG.error("pid %d cannot be killed: it hangs in the kernel", process.pid)
            with self._mutex:
                self._unreaped.append((about, process))


def _too_many(argv: Sequence[str], which: str) -> CommandFailed:
    return CommandFailed(tuple(argv), 126, f"{which} hang in the kernel; see dmesg")


def _about(argv: Sequence[str]) -> str:
    """Return the volume group or the mount point that a command is about."""
    return changes.volume_group(argv) if changes.is_query(argv) else argv[-1]


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
