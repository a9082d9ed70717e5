# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run the process of lunshare.agent.reports, and send it the reports.

Outside the root helper, only this module starts a process: this Python with fixed
arguments, normally once in the life of the daemon.
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

#: Seconds before it is started again: the first time, and at most. The pause doubles
#: each time, until a process has run for LONGEST.
FIRST, LONGEST = 1.0, 60.0

# Seconds that it has to end after its input has ended.
_END_SECONDS = 3.0

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
        """Start, with a first report at once."""
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
        """Return whether its thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        pause = FIRST
        while not self._stopped.is_set():
            started = time.monotonic()
            code = self._run_process()
            if self._stopped.is_set():
                return
            if time.monotonic() - started > LONGEST:
                pause = FIRST
            LOG.error("[reports] ENDED code=%s; again in %.0f s", code, pause)
            self._stopped.wait(pause)
            pause = min(pause * 2, LONGEST)

    def _run_process(self) -> int:
        """Run one process until it ends; return its exit code."""
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(self._command, stdin=reading)
        finally:
            os.close(reading)
        self._process = process
        LOG.info("[reports] STARTED pid=%d", process.pid)
        try:
            self._feed(process.pid, writing)
        finally:
            os.close(writing)
        return _wait(process)

    def _feed(self, pid: int, pipe: int) -> None:
        """Send it reports until it ends or ``stop`` is called."""
        end = os.pidfd_open(pid)
        try:
            waiting = select.poll()
            waiting.register(end, select.POLLIN)
            waiting.register(self._wake, select.POLLIN)
            while self._send(pipe) and not waiting.poll(self._seconds * 1000):
                continue
        finally:
            os.close(end)

    def _send(self, pipe: int) -> bool:
        """Write a line for each backend; return False if the process has ended."""
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
            LOG.exception("[reports] COLLECT failed; the next report may succeed")
            return b""
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
        lines = (
            {"host": host, "capabilities": capabilities, "timestamp": moment}
            for host, capabilities in reports.items()
        )
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def create(conf: cfg.ConfigOpts, collect: Collect) -> Reporter | None:
    """Return the reporter of this configuration; None without a transport_url.

    :raises StartupError: oslo.messaging is not installed, or the URL is not valid.
    """
    url = conf.scheduler.transport_url
    if not url:
        return None
    if "://" not in url:
        raise StartupError(
            "[scheduler] transport_url is not a URL: give one such as"
            " rabbit://USER:PASSWORD@HOST:5672/"
        )
    if importlib.util.find_spec("oslo_messaging") is None:
        raise StartupError(
            "[scheduler] transport_url needs oslo.messaging, which is not installed:"
            " pip install 'lunshare[scheduler]', or leave the option out"
        )
    # Libraries of oslo.messaging print warnings at each start.
    python = [sys.executable, "-W", "ignore"]
    command = [*python, "-m", "lunshare.agent.reports", *_files(conf)]
    return Reporter(command, conf.scheduler.report_interval, collect)


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the arguments to read the same files. They contain no secret."""
    arguments = [f"--config-file={name}" for name in conf.config_file or ()]
    return arguments + [f"--config-dir={name}" for name in conf.config_dir or ()]
