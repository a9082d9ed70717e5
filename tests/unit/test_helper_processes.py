# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""node.processes: what the helper and the commands that it has started use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lunshare.drivers.errors import CommandFailed, InvalidValue
from lunshare.helper import processes
from tests.stands.waiting import until

_SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """A command that has started to sleep."""
    started = processes.start(
        _SLEEP,
        dict(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert started.stdout
    with started.stdout:
        started.stdout.readline()
        yield started
        started.kill()
        started.wait()


def sleeping() -> dict[str, float]:
    rows: dict[str, dict[str, float]] = processes.usage(dict, {}, 1.0)["commands"]
    return rows["sleeping"]


def test_commands_are_counted_by_state_while_they_run(command) -> None:
    until(lambda: sleeping()["count"] == 1)
    assert 0 < sleeping()["oldest"] < 60
    os.kill(command.pid, signal.SIGSTOP)
    until(lambda: processes.usage(dict, {}, 1.0)["commands"]["other"]["count"] == 1)
    assert sleeping() == {"count": 0, "oldest": 0.0}
    command.kill()
    command.wait()
    assert all(
        row["count"] == 0 for row in processes.usage(dict, {}, 1.0)["commands"].values()
    )


def test_a_command_that_nobody_has_waited_for_uses_nothing_more(command) -> None:
    command.kill()
    until(lambda: processes.usage(dict, {}, 1.0)["commands"]["other"]["count"] == 1)
    assert processes.usage(dict, {}, 1.0)["used"]["memory"] == 0


def test_memory_descriptors_and_threads_are_those_of_helper_and_commands(
    command,
) -> None:
    usage = processes.usage(dict, {}, 1.0)
    for part in ("helper", "used"):
        assert usage[part]["memory"] > 1 << 20
        assert usage[part]["descriptors"] >= 3
        assert usage[part]["threads"] >= 1
    assert usage["used"]["threads"] == 1


def test_processes_of_others_are_not_looked_at() -> None:
    other = subprocess.Popen(_SLEEP, stdout=subprocess.PIPE)
    assert other.stdout
    with other.stdout:
        other.stdout.readline()
        assert processes.usage(dict, {}, 1.0)["used"]["threads"] == 0
        other.kill()
        other.wait()


def test_it_takes_no_arguments() -> None:
    with pytest.raises(InvalidValue):
        processes.usage(dict, {"pid": 1}, 1.0)


def test_program_that_cannot_be_started_is_a_failed_command() -> None:
    nothing = subprocess.DEVNULL
    with pytest.raises(CommandFailed, match="No such file"):
        processes.start(["/nowhere"], {}, stdin=nothing, stdout=nothing, stderr=nothing)
    # It is not a command of the table.
    assert processes.usage(dict, {}, 1.0)["used"]["threads"] == 0
