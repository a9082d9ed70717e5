# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run the process of lunshare.agent.reports, and send it the reports.

This is the one place outside the root helper that starts a process: a Python
of our own, with arguments of our own, once in the daemon's life if all is well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess  # noqa: TID251 - see above
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from oslo_config import cfg
from oslo_log import log

from lunshare.agent.errors import StartupError

LOG = log.getLogger(__name__)

Collect = Callable[[], Mapping[str, Mapping[str, Any]]]

#: Seconds before it is started again: the first time, and at most. Twice as long
#: each time, until one has lived for the longest of them.
FIRST, LONGEST = 1.0, 60.0

# Seconds for it to end by itself once its input has ended.
_ENDING = 3.0

# The share of the time to stop that is left for a process that had to be killed.
_KILLED_SHARE = 0.2


class Reporter:
    """A child process that gets a report of each backend every ``seconds``."""

    def __init__(
        self, command: Sequence[str], seconds: float, collect: Collect
    ) -> None:
        self._command, self._seconds, self._collect = list(command), seconds, collect
        self._stopped = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        """Begin, with a first report at once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the process, and wait up to ``timeout`` seconds for it.

        It is killed if it has not ended after most of that time.
        """
        self._stopped.set()
        os.eventfd_write(self._wake, 1)
        if self._thread.ident is None:
            return
        self._thread.join(timeout * (1 - _KILLED_SHARE))
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(timeout * _KILLED_SHARE)

    @property
    def alive(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        pause = FIRST
        while not self._stopped.is_set():
            began = time.monotonic()
            code = self._life()
            if self._stopped.is_set():
                return
            if time.monotonic() - began > LONGEST:
                pause = FIRST
            LOG.error("[reports] ENDED code=%s; again in %.0f s", code, pause)
            self._stopped.wait(pause)
            pause = min(pause * 2, LONGEST)

    def _life(self) -> int:
        """One process from its start to its end; its exit code."""
        theirs, ours = os.pipe()
        try:
            process = subprocess.Popen(self._command, stdin=theirs)
        finally:
            os.close(theirs)
        self._process = process
        LOG.info("[reports] STARTED pid=%d", process.pid)
        try:
            self._feed(process.pid, ours)
        finally:
            os.close(ours)
        return _ended(process)

    def _feed(self, pid: int, pipe: int) -> None:
        """Give it reports until it or we are to end."""
        end = os.pidfd_open(pid)
        try:
            waiting = select.poll()
            waiting.register(end, select.POLLIN)
            waiting.register(self._wake, select.POLLIN)
            while self._give(pipe) and not waiting.poll(self._seconds * 1000):
                continue
        finally:
            os.close(end)

    def _give(self, pipe: int) -> bool:
        """Write a line for each backend; False when nobody reads any more."""
        try:
            left = self._lines()
            while left:
                left = left[os.write(pipe, left) :]
        except OSError:
            return False
        return True

    def _lines(self) -> bytes:
        try:
            reports = self._collect()
        except Exception:
            LOG.exception("[reports] COLLECT failed; the next one may not")
            return b""
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
        lines = (
            {"host": host, "capabilities": capabilities, "timestamp": moment}
            for host, capabilities in reports.items()
        )
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def make(conf: cfg.ConfigOpts, collect: Collect) -> Reporter | None:
    """The reporter of this configuration; None where no scheduler is to be told.

    :raises StartupError: what it needs is not installed, or its URL is none.
    """
    url = conf.scheduler.transport_url
    if not url:
        return None
    if "://" not in url:
        raise StartupError(
            "[scheduler] transport_url is no URL: give one such as"
            " rabbit://USER:PASSWORD@HOST:5672/"
        )
    if importlib.util.find_spec("oslo_messaging") is None:
        raise StartupError(
            "[scheduler] transport_url needs oslo.messaging, which is not installed:"
            " pip install 'lunshare[scheduler]', or leave the option out"
        )
    # Libraries that oslo.messaging brings warn of themselves at each start.
    python = [sys.executable, "-W", "ignore"]
    command = [*python, "-m", "lunshare.agent.reports", *_files(conf)]
    return Reporter(command, conf.scheduler.report_interval, collect)


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """The arguments that make another process read the same files; no secret."""
    words = [f"--config-file={name}" for name in conf.config_file or ()]
    return words + [f"--config-dir={name}" for name in conf.config_dir or ()]
