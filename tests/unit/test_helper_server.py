# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper's socket and its client: frames, peers, refusals, deadlines.

A real server on a real socket, served by threads of this process under our
own uid. No configfs is needed: what reaches it is tested in tests/system.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers import errors
from drivers.execute import Helper
from drivers.helper import frames
from drivers.helper.commands import Commands
from drivers.helper.lio import Lio
from drivers.helper.server import Server, verbs

FILTERS = """
[Filters]
echo: RegExpFilter, echo, root, echo, [a-z]+
sleep: RegExpFilter, sleep, root, sleep, [0-9]+
false: CommandFilter, sh, root
"""
EXEC_DIRS = ("/usr/bin", "/bin")


@pytest.fixture
def filters(tmp_path: Path) -> Path:
    directory = tmp_path / "rootwrap.d"
    directory.mkdir(mode=0o755)
    (directory / "test.filters").write_text(FILTERS)
    (directory / "test.filters").chmod(0o644)
    return directory


class Life:
    """One life of a server on a path."""

    def __init__(self, path: Path, filters: Path, allowed: Collection[int]) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        table = verbs(Commands(str(filters), EXEC_DIRS), Lio("iqn.2026-11.io.test:"))
        self.server = Server(listener, table, allowed)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a test has ended it already
            self.server.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


Serve = Callable[..., Life]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "helper.sock"


@pytest.fixture
def serve(path: Path, filters: Path) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(allowed: Collection[int] = frozenset({os.getuid()})) -> Life:
            life = Life(path, filters, allowed)
            stack.callback(life.end)
            return life

        yield start


@pytest.fixture
def helper(serve: Serve, path: Path) -> Iterator[Helper]:
    serve()
    made = Helper(str(path))
    yield made
    made.close()


def knock(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


# what may run


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
def test_a_command_of_another_shape_is_refused(
    helper: Helper, argv: tuple[str, ...]
) -> None:
    with pytest.raises(errors.HelperRefused):
        helper.run(*argv)


def test_privsep_helper_is_refused_where_it_could_be_executed(
    filters: Path, tmp_path: Path
) -> None:
    """oslo.rootwrap allows it in every set of filters; we do not."""
    program = tmp_path / "privsep-helper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(errors.HelperRefused):
        Commands(str(filters), [str(tmp_path)]).command(["privsep-helper"])


def test_a_failed_command_tells_how(helper: Helper) -> None:
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


def test_filters_that_others_can_change_are_not_used(filters: Path) -> None:
    (filters / "test.filters").chmod(0o664)
    with pytest.raises(errors.Misconfigured, match="changed by others"):
        Commands(str(filters), EXEC_DIRS)


def test_filters_for_another_user_are_not_used(filters: Path) -> None:
    (filters / "test.filters").write_text("[Filters]\nx: CommandFilter, ls, nobody\n")
    with pytest.raises(errors.Misconfigured, match="as root"):
        Commands(str(filters), EXEC_DIRS)


def test_missing_filters_are_told(tmp_path: Path) -> None:
    with pytest.raises(errors.Misconfigured, match="--filters"):
        Commands(str(tmp_path / "none"), EXEC_DIRS)


# who may ask


def test_another_user_is_not_served(serve: Serve, path: Path) -> None:
    serve(allowed={os.getuid() + 1})
    with pytest.raises(errors.HelperUnreachable):
        Helper(str(path)).run("echo", "hello")


def test_no_server_is_told_with_what_to_do(path: Path) -> None:
    with pytest.raises(errors.HelperUnreachable, match="start lunshare-helper"):
        Helper(str(path)).run("echo", "hello")


# frames


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", frames.MAX_REQUEST + 1),
        struct.pack(">I", 3) + b"{no",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_bad_frame_ends_its_connection_only(
    helper: Helper, path: Path, sent: bytes
) -> None:
    with knock(path) as bad, knock(path) as good:
        bad.sendall(sent)
        assert bad.recv(1) == b""
        frames.send(good, {"verb": "run", "timeout": 5, "arguments": {"argv": ["x"]}})
        assert frames.receive(good)["error"] == "helper-refused"
    assert helper.run("echo", "still") == "still\n"


def test_a_frame_may_come_in_pieces(helper: Helper, path: Path) -> None:
    body = json.dumps(
        {"verb": "run", "timeout": 5, "arguments": {"argv": ["echo", "hi"]}}
    ).encode()
    with knock(path) as slow:
        for byte in struct.pack(">I", len(body)) + body:
            slow.sendall(bytes([byte]))
        assert frames.receive(slow) == {"value": "hi\n"}


def test_an_answer_may_be_larger_than_a_request(helper: Helper) -> None:
    size = frames.MAX_REQUEST * 2
    text = helper.run("sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x")
    assert len(text) == size


# arguments


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {"verb": "run"},
        {"verb": "run", "timeout": True, "arguments": {}},
        {"verb": "run", "timeout": -1, "arguments": {}},
        {"verb": "run", "timeout": 1, "arguments": {"argv": []}},
        {"verb": "run", "timeout": 1, "arguments": {"argv": "echo hello"}},
        {"verb": "run", "timeout": 1, "arguments": {"argv": ["echo", 1]}},
        {"verb": "run", "timeout": 1, "arguments": {"argv": ["echo"], "env": {}}},
        {"verb": "lio.observe", "timeout": 1, "arguments": {"x": 1}},
        {"verb": "lio.remove", "timeout": 1, "arguments": {"volume_id": "../x"}},
    ],
)
def test_a_malformed_request_is_an_answer(
    helper: Helper, path: Path, message: Any
) -> None:
    with knock(path) as connection:
        frames.send(connection, message)
        assert frames.receive(connection)["error"] == "invalid-value"
        frames.send(connection, {"verb": "none", "timeout": 1, "arguments": {}})
        assert frames.receive(connection)["error"] == "helper-refused"


# the client


def test_a_restarted_helper_is_found_again(serve: Serve, path: Path) -> None:
    first = serve()
    helper = Helper(str(path))
    with contextlib.ExitStack() as stack:
        stack.callback(helper.close)
        for _ in range(3):
            assert helper.run("echo", "one") == "one\n"
        first.end()
        for connection in helper._idle:
            connection.shutdown(socket.SHUT_RDWR)
        serve()
        assert helper.run("echo", "two") == "two\n"


def test_many_threads_share_a_client(helper: Helper) -> None:
    words = [chr(97 + number) * 5 for number in range(8)]
    found: dict[str, set[str]] = {word: set() for word in words}

    def ask(word: str) -> None:
        for _ in range(5):
            found[word].add(helper.run("echo", word))

    threads = [threading.Thread(target=ask, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {word: {word + "\n"} for word in words}


def test_a_helper_that_hangs_is_given_up(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(errors.DeadlineExceeded):
            Helper(str(path)).call("lio.observe", timeout=0.1)
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidValue("size", 3, "give more"),
        errors.CommandFailed(("a", "b"), 5, "why"),
        errors.HelperRefused("what", "why"),
        errors.DeadlineExceeded("what", 1.5),
        errors.TargetFailed("id", "why"),
        errors.Misconfigured("what", "remedy"),
    ],
)
def test_an_error_arrives_as_it_was_raised(
    path: Path, error: errors.DriverError
) -> None:
    def fail(_given: object, _seconds: float) -> None:
        raise error

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    server = Server(listener, {"fail": fail}, {os.getuid()})
    thread = threading.Thread(target=server.serve)
    thread.start()
    helper = Helper(str(path))
    with pytest.raises(type(error)) as caught:
        helper.call("fail")
    helper.close()
    server.close()
    thread.join(10)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


# the process


def test_the_process_says_when_it_is_ready_and_stops_on_sigterm(
    tmp_path: Path, path: Path, filters: Path
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(30)
        line = [sys.executable, "-m", "drivers.helper.server", "--user", user]
        line += ["--socket", str(path), "--filters", str(filters)]
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert notify.recv(100) == b"READY=1"
            assert path.stat().st_mode & 0o777 == 0o660
            helper = Helper(str(path))
            assert helper.run("echo", "hello") == "hello\n"
            helper.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert notify.recv(100) == b"STOPPING=1"
        finally:
            process.kill()
            process.wait()


def test_an_unknown_user_ends_the_start_with_a_sentence(
    path: Path, filters: Path
) -> None:
    line = [sys.executable, "-m", "drivers.helper.server", "--user", "no-such-user"]
    line += ["--socket", str(path), "--filters", str(filters)]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is no user no-such-user" in done.stderr
    assert "Traceback" not in done.stderr
