# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A request to stop is never missed, whatever the main thread waits in.

A signal that comes just before a system call does not interrupt the call. The same is
forced here: another thread receives the signal, because the main thread blocks it.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lunshare.drivers.stop_signals import STOPS
from tests.stands.daemon import FAKE
from tests.stands.servers import ROOT, free_port
from tests.stands.waiting import until

BOUND = 60  # seconds until a started process must have answered

RECEIVED_BY_ANOTHER_THREAD = """
import signal, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
"""
HELPER = "from lunshare.helper.main import main; sys.exit(main())"
DAEMON = "from lunshare.agent.main import main; sys.exit(main())"
WAITS = """
from lunshare.drivers.sd_notify import notify
from lunshare.drivers.stop_signals import StopSignals
signal.signal(signal.SIGHUP, lambda *_: notify("RELOADED=1"))
stop = StopSignals()
notify("READY=1")
stop.wait()
"""


@contextmanager
def started(
    directory: Path, program: str, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Run a program until it is ready, with the socket of its notifications."""
    line = [sys.executable, "-c", RECEIVED_BY_ANOTHER_THREAD + program, *options]
    name = str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(name)
        notify.settimeout(BOUND)
        process = subprocess.Popen(line, env={**os.environ, "NOTIFY_SOCKET": name})
        try:
            while b"READY=1" not in notify.recv(1000):
                pass
            yield process, notify
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("number", STOPS)
def test_the_helper_stops(number: signal.Signals, tmp_path: Path) -> None:
    filters = tmp_path / "rootwrap.d"
    filters.mkdir(0o755)
    served = tmp_path / "helper.conf"
    served.touch(0o644)
    options = ["--user", pwd.getpwuid(os.getuid()).pw_name]
    options += ["--socket", str(tmp_path / "helper.sock")]
    options += ["--filters", str(filters), "--config", str(served)]
    with started(tmp_path, HELPER, *options) as (process, notify):
        process.send_signal(number)
        assert process.wait(BOUND) == 0
        assert notify.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("number", STOPS)
def test_the_daemon_stops(number: signal.Signals, tmp_path: Path) -> None:
    options = ["--config-file", str(FAKE), "--state-path", str(tmp_path / "state")]
    options += ["--listen", f"127.0.0.1:{free_port()}"]
    with started(tmp_path, DAEMON, *options) as (process, _):
        process.send_signal(number)
        assert process.wait(BOUND) == 0


def test_the_daemon_writes_a_report_and_goes_on(tmp_path: Path) -> None:
    config, journal = tmp_path / "lunshare.conf", tmp_path / "journal"
    database = tmp_path / "secret.sqlite"
    config.write_text(f"[database]\nconnection = sqlite:///{database}\n")
    options = ["--config-file", str(FAKE), "--config-file", str(config)]
    options += ["--state-path", str(tmp_path / "state")]
    options += ["--listen", f"127.0.0.1:{free_port()}"]
    program = f"sys.stderr = open({str(journal)!r}, 'w')\n{DAEMON}"
    with started(tmp_path, program, *options) as (process, _):
        for _number in range(2):
            process.send_signal(signal.SIGUSR2)
            until(lambda: "Configuration" in journal.read_text())
            assert process.poll() is None
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        process.terminate()
        assert process.wait(BOUND) == 0
    assert "greenlet" not in maps
    report = journal.read_text()
    for section in ("Guru Meditation", "Package", "Threads", "Processes"):
        assert section in report
    assert "connection = ***" in report
    assert "secret.sqlite" not in report


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGHUP])
def test_no_signal_for_a_running_daemon_ends_one_that_starts(number: int) -> None:
    """Its modules take a second to import, before it has handlers."""
    code = (
        "import importlib, signal, sys; from lunshare.agent import entry_points\n"
        "def imported(name):\n"
        f"    signal.raise_signal({number:d})\n"
        "    sys.exit(7)\n"
        "importlib.import_module = imported; entry_points.lunshared()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 7


def test_other_signals_are_handled_during_the_wait(tmp_path: Path) -> None:
    with started(tmp_path, WAITS) as (process, notify):
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert notify.recv(100) == b"RELOADED=1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def test_a_request_to_stop_is_not_lost_in_a_full_pipe(tmp_path: Path) -> None:
    fills = (
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "signal.signal(signal.SIGWINCH, lambda *_: None)\n"
        "for _ in range(70000): signal.raise_signal(signal.SIGWINCH)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
        "stop.wait()"
    )
    with started(tmp_path, WAITS.replace("stop.wait()", fills)) as (process, _):
        assert process.wait(BOUND) == 0
