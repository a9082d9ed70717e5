# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command as root, if a line in rootwrap.d allows it. Never a shell.

The rules are oslo.rootwrap's own files and matcher, used inside this process,
so that a command costs no start of a Python interpreter.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Sequence

from oslo_rootwrap import filters, wrapper

from drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    HelperRefused,
    Misconfigured,
)

LOG = logging.getLogger(__name__)

#: After SIGKILL a process that is not stuck in the kernel is gone well within this.
_KILL_SECONDS = 0.5


class Commands:
    """The commands that the filter files in ``directory`` allow.

    :raises Misconfigured: someone other than root could change the rules.
    """

    def __init__(self, directory: str, exec_dirs: Sequence[str]) -> None:
        self._exec_dirs = list(exec_dirs)
        self._filters = _load(directory)
        # LVM tells about every descriptor it finds open; nobody reads that here.
        self._environment = {
            "LC_ALL": "C",
            "PATH": ":".join(exec_dirs),
            "LVM_SUPPRESS_FD_WARNINGS": "1",
        }
        self._unreaped: list[subprocess.Popen[bytes]] = []
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._filters)

    def command(self, argv: Sequence[str]) -> list[str]:
        """What would be executed for ``argv``.

        :raises HelperRefused: no filter allows it, or its program is missing.
        """
        shown = shlex.join(argv)
        if not all(word.isprintable() for word in argv):
            raise HelperRefused(shown, "an argument has a control character")
        try:
            match = wrapper.match_filter(self._filters, list(argv), self._exec_dirs)
        except wrapper.NoFilterMatched:
            raise HelperRefused(shown, "no line in rootwrap.d allows it") from None
        except wrapper.FilterMatchNotExecutable:
            raise HelperRefused(
                shown, f"the program is not in {':'.join(self._exec_dirs)}"
            ) from None
        return list(match.get_command(list(argv), self._exec_dirs))

    def run(self, argv: Sequence[str], timeout: float) -> str:
        """Run it for at most ``timeout`` seconds and return its stdout.

        :raises HelperRefused: see ``command``.
        :raises CommandFailed: it exited with another code than 0.
        :raises DeadlineExceeded: it was killed, or the kernel would not let it die.
        """
        command = self.command(argv)
        started = time.monotonic()
        code: int | None = None
        try:
            code, out, err = self._finish(self._start(command), argv, timeout)
        finally:
            LOG.info(
                "run %s seconds=%.3f exit=%s",
                shlex.join(argv),
                time.monotonic() - started,
                "none" if code is None else code,
            )
        if code:
            raise CommandFailed(tuple(argv), code, err)
        return out

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self._reap()
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
        self, process: subprocess.Popen[bytes], argv: Sequence[str], timeout: float
    ) -> tuple[int, str, str]:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill(process)
            raise DeadlineExceeded(shlex.join(argv), timeout) from None
        return process.returncode, _text(out), _text(err)

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


def _load(directory: str) -> list[filters.CommandFilter]:
    """The filters, without the one that oslo.rootwrap adds to every set.

    load_filters appends a CommandFilter for privsep-helper (oslo.rootwrap 7.2
    to 7.10), which would let the caller run any privsep context it likes.
    """
    paths = [directory, *(entry.path for entry in _scan(directory))]
    for path in paths:
        _refuse_writable(path)
    loaded = wrapper.load_filters([directory])
    kept = [rule for rule in loaded if rule.exec_path != "privsep-helper"]
    for rule in kept:
        if rule.run_as != "root" or isinstance(rule, filters.ChainingFilter):
            raise Misconfigured(
                f"filter {rule.name} in {directory}",
                "only filters that run one command as root are supported",
            )
    return kept


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(directory))
    except OSError as error:
        raise Misconfigured(
            f"filter directory {directory}: {error.strerror}",
            "install rootwrap.d there or name it with --filters",
        ) from None


def _refuse_writable(path: str) -> None:
    found = os.stat(path)
    writable = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if writable or found.st_uid not in (0, os.geteuid()):
        raise Misconfigured(
            f"{path} can be changed by others than root",
            "chown root and chmod go-w, for it says what runs as root",
        )


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
