# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper's socket and its client: peers, frames, arguments, restarts.

No configfs is needed: what reaches it is tested in tests/system.
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
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames, messages
from lunshare.helper.lio import exports_command
from lunshare.helper.server import Server
from tests.stands.waiting import until
from tests.unit.helper_process import HelperProcess
from tests.unit.helper_thread import Serve

pytest_plugins = ["tests.unit.helper_fixtures"]

_NOBODY = 65534


def open_connection(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


# who may ask


def test_another_user_is_not_served(serve: Serve, path: Path) -> None:
    serve(allowed={os.getuid() + 1})
    with pytest.raises(errors.HelperUnreachable):
        Helper(str(path)).run("echo", "hello")


def test_error_without_a_server_names_what_to_do(path: Path) -> None:
    with pytest.raises(errors.HelperUnreachable, match="start lunshare-helper"):
        Helper(str(path)).run("echo", "hello")


def test_user_who_may_not_open_the_socket_is_named(serve: Serve, path: Path) -> None:
    serve()
    path.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(_NOBODY)
    try:
        with pytest.raises(
            errors.HelperForbidden, match=r"user .* may not use .*--user"
        ):
            Helper(str(path)).run("echo", "hello")
    finally:
        os.seteuid(before)


# frames


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", frames.MAX_REQUEST + 1),
        struct.pack(">I", 3) + b"{no",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bad_frame_closes_only_its_connection(
    helper: Helper, path: Path, sent: bytes
) -> None:
    with open_connection(path) as bad, open_connection(path) as good:
        bad.sendall(sent)
        # A reset if the helper closes it with bytes that it has not read.
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""
        frames.send(good, messages.request("run", 5, {"argv": ["x"]}))
        assert frames.receive(good)["error"] == "helper-refused"
    assert helper.run("echo", "still") == "still\n"


def test_a_frame_may_come_in_pieces(helper: Helper, path: Path) -> None:
    body = json.dumps(messages.request("run", 5, {"argv": ["echo", "hi"]})).encode()
    with open_connection(path) as slow:
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
        {"protocol": messages.PROTOCOL, "call": "run"},
        messages.request("run", True, {}),
        messages.request("run", -1, {}),
        messages.request("run", 1, {"argv": []}),
        messages.request("run", 1, {"argv": "echo hello"}),
        messages.request("run", 1, {"argv": ["echo", 1]}),
        messages.request("run", 1, {"argv": ["echo"], "env": {}}),
        messages.request("lio.observe", 1, {"x": 1}),
        messages.request("lio.remove", 1, {"volume_id": "../x"}),
    ],
)
def test_malformed_request_is_answered(
    helper: Helper, path: Path, message: Any
) -> None:
    with open_connection(path) as connection:
        frames.send(connection, message)
        assert frames.receive(connection)["error"] == "invalid-value"
        frames.send(connection, messages.request("none", 1, {}))
        assert frames.receive(connection)["error"] == "helper-refused"


# the client


def test_client_reconnects_to_a_restarted_helper(serve: Serve, path: Path) -> None:
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


def ask_by_client(path: Path) -> object:
    client = Helper(str(path))
    with contextlib.closing(client):
        return client.call("lio.observe", timeout=20)


def ask_by_command(path: Path) -> object:
    return exports_command.main(["--socket", str(path)]) or []


@pytest.mark.parametrize("ask", [ask_by_client, ask_by_command])
def test_a_full_queue_of_connections_is_waited_for(path: Path, ask) -> None:
    """Whoever holds the daemon's user can fill it; then root's command failed."""
    answers: list[object] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(1)
        with contextlib.suppress(BlockingIOError):
            while True:
                with socket.socket(socket.AF_UNIX) as filler:
                    filler.setblocking(False)
                    filler.connect(str(path))
        client = threading.Thread(target=lambda: answers.append(ask(path)))
        client.start()
        client.join(0.3)
        assert client.is_alive()
        while client.is_alive():
            accepted, _ = listener.accept()
            with accepted, contextlib.suppress(frames.Closed):
                frames.receive(accepted)
                frames.send(accepted, {"value": []})
                client.join(20)
    assert answers == [[]]


def test_client_gives_up_when_the_helper_hangs(path: Path) -> None:
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


def test_process_notifies_systemd_and_stops_on_sigterm(
    tmp_path: Path, path: Path, filters: Path, served: Path
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(30)
        line = [sys.executable, "-m", "lunshare.helper.main", "--user", user]
        line += ["--socket", str(path), "--filters", str(filters)]
        line += ["--config", str(served)]
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert notify.recv(100) == b"READY=1"
            assert path.stat().st_mode & 0o777 == 0o660
            helper = Helper(str(path))
            assert helper.run("echo", "hello") == "hello\n"
            helper.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert notify.recv(100) == b"STOPPING=1"
        finally:
            process.kill()
            process.wait()


def test_sigusr2_writes_the_stacks_and_ends_nothing(tmp_path: Path) -> None:
    """An operator sends it to the daemon, for a report of what it does."""
    process = HelperProcess(tmp_path)
    try:
        process.start("volume_groups = vg")
        assert process.process
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: " in main\n" in process.log_text())
        assert "(most recent call first):" in process.log_text()
        assert process.client().call("node.processes")["commands"]
    finally:
        process.stop()


def test_unknown_user_is_an_error_at_the_start(path: Path, filters: Path) -> None:
    line = [sys.executable, "-m", "lunshare.helper.main", "--user", "no-such-user"]
    line += ["--socket", str(path), "--filters", str(filters)]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is no user no-such-user" in done.stderr
    assert "Traceback" not in done.stderr
