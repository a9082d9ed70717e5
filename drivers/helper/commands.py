# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command as root, if a line in rootwrap.d allows it. Never a shell.

Which line that is, ``rules`` knows. What changes a volume group is never killed
(changes); what only asks is, at its deadline. No change of a disk begins while an
earlier one on it runs (work).
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from lunshare.drivers.errors import CommandFailed, DeadlineExceeded
from lunshare.drivers.helper.disk_locks import Units
from lunshare.drivers.helper.lvm import changes, lvm_config
from lunshare.drivers.helper.rules import Rules
from lunshare.drivers.helper.served import NOTHING, Served

LOG = logging.getLogger(__name__)

#: After SIGKILL a process that is not stuck in the kernel is gone well within this.
_KILL_SECONDS = 0.5

#: So many may hang in the kernel before no further one is started.
MAX_HUNG = 64


class Commands:
    """The commands that the filter files in ``directory`` allow on what is served.

    ``units`` are the disks that are worked on.

    :raises Misconfigured: someone other than root could change the rules.
    """

    def __init__(
        self,
        directory: str,
        exec_dirs: Sequence[str],
        served: Served = NOTHING,
        units: Units | None = None,
    ) -> None:
        self._rules = Rules(directory, exec_dirs, served)
        # LVM tells about every descriptor it finds open; nobody reads that here.
        self._environment = {
            "LC_ALL": "C",
            "PATH": ":".join(exec_dirs),
            "LVM_SUPPRESS_FD_WARNINGS": "1",
        }
        self._changes = changes.Changes(units or Units(), self._environment)
        self._unreaped: list[subprocess.Popen[bytes]] = []
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._rules)

    def command(self, argv: Sequence[str]) -> list[str]:
        """What would be executed for ``argv``.

        :raises HelperRefused: no filter allows it, or its program is missing.
        :raises Unsupported: root does not want disks of others to be taken over.
        """
        return self._rules.command(argv)

    def run(self, argv: Sequence[str], timeout: float) -> str:
        """Run it for at most ``timeout`` seconds and return its stdout.

        :raises HelperRefused: see ``command``.
        :raises CommandFailed: it exited with another code than 0.
        :raises DeadlineExceeded: it was killed, or the kernel would not let it die;
            or it changes a volume group, and goes on; or an earlier command on its
            disk has not ended, and it was not begun.
        """
        command = self.command(argv)
        if changes.changes(argv) or changes.asks(argv):
            command = lvm_config.pinned(command)
        started = time.monotonic()
        code: int | None = None
        try:
            outcome = self._outcome(command, argv, timeout)
            code = outcome.code
        finally:
            LOG.info(
                "run %s seconds=%.3f exit=%s",
                shlex.join(argv),
                time.monotonic() - started,
                "none" if code is None else code,
            )
        if code:
            raise CommandFailed(tuple(argv), code, outcome.err)
        return outcome.out

    def _outcome(
        self, command: list[str], argv: Sequence[str], timeout: float
    ) -> changes.Outcome:
        if changes.changes(argv):
            return self._changes.run(command, argv, timeout)
        deadline = time.monotonic() + timeout
        if changes.asks(argv):
            self._changes.wait(argv, timeout)
        return self._finish(self._start(command), argv, timeout, deadline)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self._reap()
        if len(self._unreaped) >= MAX_HUNG:
            why = f"{MAX_HUNG} commands hang in the kernel; see dmesg"
            raise CommandFailed(tuple(command), 126, why)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                close_fds=True,
                process_group=0,
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise CommandFailed(tuple(command), 126, why) from None

    def _finish(
        self,
        process: subprocess.Popen[bytes],
        argv: Sequence[str],
        timeout: float,
        deadline: float,
    ) -> changes.Outcome:
        left = max(0.0, deadline - time.monotonic())
        try:
            out, err = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            self._kill(process)
            raise DeadlineExceeded(shlex.join(argv), timeout) from None
        return changes.Outcome(process.returncode, _text(out), _text(err))

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """End the whole group; what hangs in the kernel is left and reaped later."""
        os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        try:
            process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            LOG.error("pid %d cannot be killed: it hangs in the kernel", process.pid)
            with self._mutex:
                self._unreaped.append(process)

    def _reap(self) -> None:
        with self._mutex:
            self._unreaped = [p for p in self._unreaped if p.poll() is None]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
