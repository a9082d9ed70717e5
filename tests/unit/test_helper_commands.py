# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Commands through the helper: what may run, how, and for how long."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.helper.commands import Commands
from tests.unit.helper_thread import EXEC_DIRS

pytest_plugins = ["tests.unit.helper_fixtures"]


def test_an_allowed_command_runs(helper: Helper) -> None:
    assert helper.run("echo", "hello") == "hello\n"


def test_a_command_without_a_filter_is_refused(helper: Helper) -> None:
    with pytest.raises(errors.HelperRefused, match="no line in rootwrap"):
        helper.run("touch", "x")


@pytest.mark.parametrize(
    "argv",
    [
        ("echo", "UPPER"),
        ("echo", "hello", "more"),
        ("echo", "hello\n"),
        ("echo", "a;b"),
        ("/tmp/echo", "hello"),
        ("../bin/echo", "hello"),
        ("sh\x00", "-c"),
        ("privsep-helper", "--privsep_context", "os_brick.privileged.default"),
        ("/usr/bin/privsep-helper",),
    ],
)
def test_command_with_other_arguments_is_refused(
    helper: Helper, argv: tuple[str, ...]
) -> None:
    with pytest.raises(errors.HelperRefused):
        helper.run(*argv)


def test_privsep_helper_is_refused_although_it_is_executable(
    filters: Path, tmp_path: Path
) -> None:
    """oslo.rootwrap allows it in every set of filters; we do not."""
    program = tmp_path / "privsep-helper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(errors.HelperRefused):
        Commands(str(filters), [str(tmp_path)]).command(["privsep-helper"])


def test_failed_command_returns_exit_code_and_stderr(helper: Helper) -> None:
    with pytest.raises(errors.CommandFailed) as caught:
        helper.run("sh", "-c", "echo why >&2; exit 5")
    assert caught.value.exit_code == 5
    assert caught.value.stderr == "why\n"
    assert caught.value.argv == ("sh", "-c", "echo why >&2; exit 5")


def test_a_command_has_a_fixed_environment_and_no_input(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD_TEST", "x")
    text = helper.run("sh", "-c", "env; cat; pwd; ls /proc/self/fd | wc -l")
    lines = text.splitlines()
    assert "LC_ALL=C" in lines
    assert "PATH=/usr/bin:/bin" in lines
    assert not any("LD_PRELOAD_TEST" in line for line in lines)
    assert lines[-2:] == ["/", "4"]


def test_a_command_is_killed_at_its_deadline_with_its_children(
    helper: Helper, tmp_path: Path
) -> None:
    started = time.monotonic()
    pid = tmp_path / "pid"
    with pytest.raises(errors.DeadlineExceeded):
        helper.run("sh", "-c", f"sleep 1000 & echo $! > {pid}; wait", timeout=0.5)
    assert time.monotonic() - started < 10
    gone = int(pid.read_text())
    assert not _runs(gone)


def _runs(pid: int) -> bool:
    """A zombie, which waits for init to take it, does not."""
    with contextlib.suppress(OSError):
        for _ in range(500):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                return False
            time.sleep(0.01)
        return True
    return False


def test_commands_are_logged_with_their_outcome(
    helper: Helper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        helper.run("echo", "hello")
    (record,) = (each for each in caplog.records if "echo" in each.getMessage())
    assert record.getMessage().startswith("run echo hello seconds=")
    assert record.getMessage().endswith("exit=0")


def test_filters_that_others_can_change_are_refused(filters: Path) -> None:
    (filters / "test.filters").chmod(0o664)
    with pytest.raises(errors.Misconfigured, match="changed by users other than root"):
        Commands(str(filters), EXEC_DIRS)


def test_filters_for_another_user_are_refused(filters: Path) -> None:
    (filters / "test.filters").write_text("[Filters]\nx: CommandFilter, ls, nobody\n")
    with pytest.raises(errors.Misconfigured, match="as root"):
        Commands(str(filters), EXEC_DIRS)


def test_missing_filters_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.Misconfigured, match="--filters"):
        Commands(str(tmp_path / "none"), EXEC_DIRS)
