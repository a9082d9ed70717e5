# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The process that reports to a scheduler: its input, its restart and its end."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from lunshare.agent import reporter
from lunshare.agent.outbox import Outbox, Sender
from lunshare.agent.reporter import Reporter
from tests.api.calls import until
from tests.daemon import DAEMON, FAKE, ROOT, answered, free_port, refused

# Writes its pid, then every line it reads.
CHILD = """
import os, sys
with open(sys.argv[1], "a", buffering=1) as received:
    received.write(f"pid {os.getpid()}\\n")
    for line in sys.stdin:
        received.write(line)
        if len(sys.argv) > 2:
            sys.exit(7)
"""
DEAF = (
    "import signal, sys, time; print(1, file=open(sys.argv[1], 'w')); time.sleep(600)"
)


def reports() -> dict[str, dict[str, Any]]:
    return {"node@one": {"free": 1}, "node@two": {"free": 2}}


@pytest.fixture
def received(tmp_path: Path) -> Path:
    return tmp_path / "received"


@pytest.fixture
def make(received: Path) -> Iterator[Any]:
    made: list[Reporter] = []

    def make(seconds: float, collect: Any = reports, program: str = CHILD, *more: str):
        command = [sys.executable, "-c", program, str(received), *more]
        made.append(Reporter(command, seconds, collect))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


def lines(received: Path) -> list[dict[str, Any]]:
    """The reports that a child was given."""
    text = received.read_text() if received.exists() else ""
    complete = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in complete if not line.startswith("pid")]


def pids(received: Path) -> list[int]:
    """The children that there were."""
    found = re.findall(
        r"^pid (\d+)\n", received.read_text() if received.exists() else "", re.M
    )
    return [int(pid) for pid in found]


def test_each_backend_is_reported_at_once_and_then_periodically(make, received: Path):
    make(0.05)
    until(lambda: len(lines(received)) >= 6)
    first, second, third, *_ = lines(received)
    assert [first["host"], second["host"]] == ["node@one", "node@two"]
    assert first["capabilities"] == {"free": 1}
    # As cinder/scheduler/manager.py reads it.
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}"
    assert re.fullmatch(form, first["timestamp"])
    assert third["timestamp"] > first["timestamp"]
    assert len(pids(received)) == 1


def test_a_child_that_dies_is_started_again_later_each_time(
    make,
    received: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(reporter, "FIRST", 0.01)
    made = make(3600, reports, CHILD, "and die")

    def waits() -> list[float]:
        records = [r for r in caplog.records if r.msg.startswith("[reports] ENDED")]
        ended = [cast("tuple[int, float]", record.args) for record in records]
        assert all(code == 7 for code, _ in ended)
        return [pause for _, pause in ended]

    until(lambda: len(waits()) >= 4)
    made.stop()
    assert all(later == 2 * sooner for sooner, later in itertools.pairwise(waits()))
    assert len(set(pids(received))) >= 4


def test_reports_continue_after_a_failed_collection(make, received: Path):
    tries: list[int] = []

    def fails_once() -> dict[str, dict[str, Any]]:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("the database is gone")
        return reports()

    make(0.05, fails_once)
    until(lambda: len(lines(received)) >= 2)
    assert len(pids(received)) == 1


def test_the_child_ends_with_its_input(make, received: Path):
    made = make(3600)
    until(lambda: len(lines(received)) == 2)
    made.stop()
    (pid,) = pids(received)
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_does_not_end_is_killed(
    make, received: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reporter, "_END_SECONDS", 0.1)
    made = make(3600, reports, DEAF)
    until(received.exists)
    made.stop()
    assert made._process.returncode == -signal.SIGKILL


# the child's own parts


def report(host: str, number: int) -> dict[str, Any]:
    return {"host": host, "number": number}


class Enough(BaseException):
    """Ends the sender's thread."""


def test_an_unavailable_bus_is_retried_with_the_newest_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("lunshare.agent.outbox.RETRY_SECONDS", 0.0)
    outbox, came = Outbox(), []
    outbox.put(report("a", 1))

    def cast(sent: dict[str, Any]) -> None:
        came.append(sent["number"])
        if len(came) < 4:
            outbox.put(report("a", len(came) + 1))
            raise OSError("no listener")
        raise Enough

    with pytest.raises(Enough):
        Sender(outbox, cast).run()
    assert came == [1, 2, 3, 4]
    assert caplog.text.count("LOST the message bus") == 1


def test_a_report_that_arrives_during_a_send_is_sent_too():
    outbox, came = Outbox(), []
    outbox.put(report("a", 1))

    def cast(sent: dict[str, Any]) -> None:
        came.append(sent["number"])
        if len(came) == 1:
            outbox.put(report("a", 2))
            outbox.put(report("b", 1))
        if len(came) == 3:
            raise Enough

    with pytest.raises(Enough):
        Sender(outbox, cast).run()
    assert came == [1, 2, 1]


def test_a_scheduler_that_requests_reports_gets_the_newest_of_each_backend():
    outbox, came = Outbox(), []

    def cast(sent: dict[str, Any]) -> None:
        came.append((sent["host"], sent["number"]))
        if len(came) == 3:
            outbox.resend()
        if len(came) == 5:
            raise Enough

    for host, number in (("a", 1), ("b", 1), ("b", 2)):
        outbox.put(report(host, number))
    outbox.put(report("c", 1))
    with pytest.raises(Enough):
        Sender(outbox, cast).run()
    assert came == [("a", 1), ("b", 2), ("c", 1), ("a", 1), ("b", 2)]


# the daemon


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a scheduler that cannot be reached."""
    more = tmp_path / "more.conf"
    url = f"rabbit://user:secret@127.0.0.1:{free_port()}/"
    more.write_text(f"[scheduler]\ntransport_url = {url}\nreport_interval = 1\n")
    return more


def test_the_daemon_loads_nothing_of_the_message_bus(config: Path, tmp_path: Path):
    log, port = tmp_path / "log", free_port()
    arguments = [f"--config-file={FAKE}", f"--config-file={config}"]
    arguments += [f"--state-path={tmp_path}/state", f"--listen=127.0.0.1:{port}"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*DAEMON, *arguments], cwd=ROOT, stdout=out, stderr=out, text=True
        )
    try:
        answered(f"http://127.0.0.1:{port}/readyz", process)
        until(lambda: "LOST the message bus" in log.read_text())
        (child,) = re.findall(r"STARTED pid=(\d+)", log.read_text())
        loaded = {
            pid: Path(f"/proc/{pid}/maps").read_text() for pid in (process.pid, child)
        }
        # eventlet is Python alone; greenlet, which it needs, is seen in maps.
        assert "greenlet" in loaded[child]
        assert "greenlet" not in loaded[process.pid]
        assert "sqlite" not in loaded[child]
        command_line = Path(f"/proc/{child}/cmdline").read_text()
        assert "secret" not in command_line + log.read_text()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not _alive(int(child)))
    assert log.read_text().count("LOST the message bus") == 1


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_without_a_scheduler_there_is_no_other_process(tmp_path: Path):
    port = free_port()
    arguments = [f"--config-file={FAKE}", f"--state-path={tmp_path}/state"]
    process = subprocess.Popen(
        [*DAEMON, *arguments, f"--listen=127.0.0.1:{port}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    answered(f"http://127.0.0.1:{port}/readyz", process)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    assert "".join(task.read_text() for task in tasks) == ""
    process.terminate()
    process.communicate(timeout=60)


def test_an_invalid_transport_url_is_refused(tmp_path: Path):
    more = tmp_path / "more.conf"
    more.write_text("[scheduler]\ntransport_url = rabbit\n")
    said = refused(
        f"--config-file={FAKE}", f"--config-file={more}", "--state-path", tmp_path
    )
    assert "[scheduler] transport_url is not a URL" in said


def test_missing_oslo_messaging_is_reported_at_the_start(config: Path, tmp_path: Path):
    program = (
        "import sys; sys.modules['oslo_messaging'] = None;"
        "from lunshare.agent.main import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [
        f"--config-file={FAKE}",
        f"--config-file={config}",
        f"--state-path={tmp_path}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'lunshare[scheduler]'" in done.stderr.strip().splitlines()[-1]
