# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A process with the daemon's user cannot lock root out: every queue is limited."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames, messages
from lunshare.helper import connections, thread_limits
from lunshare.helper.connections import FOR_ROOT, MAX_CONNECTIONS, Connections
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.mounts import KERNEL, Mount
from lunshare.helper.named_locks import Locks
from lunshare.helper.nfs import files
from lunshare.helper.nfs.files import OpenShare
from lunshare.helper.nfs.share_requests import FileName
from lunshare.helper.server import Server
from tests.stands.waiting import until
from tests.unit.helper_process import HelperProcess

CHECK = messages.request("lio.check", 5, {"prefix": "p:"})


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelperProcess]:
    made = HelperProcess(tmp_path_factory.mktemp("helper"), "lvs")
    made.start("volume_groups = lunshare")
    yield made
    made.stop()


def answered(connection: socket.socket) -> bool:
    frames.send(connection, CHECK)
    return "value" in frames.receive(connection)


# connections


def test_idle_connections_do_not_block_a_new_one(process: HelperProcess) -> None:
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(process.open_connection())
            for _ in range(MAX_CONNECTIONS)
        ]
        idle += [stack.enter_context(process.open_connection()) for _ in range(40)]
        assert answered(idle[-1])
        with process.open_connection() as late:
            assert answered(late)
        # Those that were idle for the longest were ended.
        assert idle[0].recv(1) == b""
        assert answered(idle[MAX_CONNECTIONS])


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 2)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


def test_last_connections_are_reserved_for_root(pairs) -> None:
    """The daemon's user has all its connections in use, and root is admitted."""
    known = Connections()
    mine = MAX_CONNECTIONS - FOR_ROOT
    busy = [known.admit(ours, 1000) for ours, _ in pairs[:mine]]
    for peer in filter(None, busy):
        assert known.start(peer)
    assert peer is busy[-1]
    assert known.admit(pairs[mine][0], 1000) is None
    roots = [known.admit(ours, 0) for ours, _ in pairs[mine:MAX_CONNECTIONS]]
    assert all(roots)
    # A connection with its answer is closed for another one of the same user.
    assert known.admit(pairs[-1][0], 1000) is None
    known.finish(peer)
    assert known.admit(pairs[-1][0], 1000)
    assert pairs[mine - 1][1].recv(1) == b""
    assert not known.start(peer)


def test_client_that_does_not_read_its_answer_is_idle(process: HelperProcess) -> None:
    """Its answer does not fit into the socket: the next ones need its place."""
    with contextlib.ExitStack() as stack:
        deaf = [
            stack.enter_context(process.open_connection())
            for _ in range(MAX_CONNECTIONS)
        ]
        long = messages.request("x" * 4000, 1, {})
        for each in deaf:
            frames.send(each, long)
        for _ in range(20):
            with process.open_connection() as late:
                assert answered(late)


# frames


def test_frame_in_small_pieces_uses_one_buffer() -> None:
    """A list of small pieces would need 234 MiB for a frame of 4 MiB."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pieces = 20_000

    def drip() -> None:
        theirs.sendall(struct.pack(">I", 2 * pieces))
        for piece in (b'"a', *[b"aa"] * (pieces - 2), b'a"'):
            theirs.sendall(piece)

    with ours, theirs:
        sender = threading.Thread(target=drip)
        sender.start()
        tracemalloc.start()
        assert len(frames.receive(ours, frames.MAX_REQUEST)) == 2 * pieces - 2
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        sender.join()
    assert most < 1024**2


def test_a_frame_has_a_deadline(
    process: HelperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(connections, "FRAME_SECONDS", 0.2)
    monkeypatch.setattr(connections, "_RECEIVE_TIMEOUT", struct.pack("ll", 0, 50_000))
    with ours, theirs:
        peer = Connections().admit(ours, 1000)
        assert peer
        theirs.sendall(struct.pack(">I", 100) + b"[")
        started = time.monotonic()
        with pytest.raises(frames.BadFrame, match="longer than"):
            peer.receive()
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("mark", [b"[", b",", b"{"])
def test_frame_with_too_many_values_is_refused(mark: bytes) -> None:
    """Four MiB of brackets would be ninety in memory."""
    ours, theirs = socket.socketpair()
    body = mark * (frames.MAX_VALUES + 1)
    with ours, theirs:
        sender = threading.Thread(
            target=lambda: theirs.sendall(struct.pack(">I", len(body)) + body)
        )
        sender.start()
        with pytest.raises(frames.BadFrame, match="values"):
            frames.receive(ours, frames.MAX_REQUEST)
        sender.join()


# threads


def test_connections_that_wait_for_a_large_frame_end_with_their_client(
    hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that was closed kept its thread for the time of a frame."""
    _, let_go = hanging
    padding, path = b" " * frames.LARGE, str(tmp_path / "helper.sock")
    monkeypatch.setattr(connections, "FRAME_SECONDS", 60.0)
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.connect(path)
            return stack.enter_context(made)

        for number in range(connections.MAX_LARGE):
            given = {"name": f"large{number}", "medium": "share", "well": False}
            body = orjson.dumps(messages.request("hang", 60, given)) + padding
            connect().sendall(struct.pack(">I", len(body)) + body)
        until(lambda: thread_limits.THREADS._waiting["share"] == connections.MAX_LARGE)
        before = threading.active_count()
        for _ in range(3 * MAX_CONNECTIONS):
            connect().sendall(struct.pack(">I", frames.LARGE + 1))
        # Those that were idle for the longest were closed; the others wait.
        last = connect()
        frames.send(last, messages.request("none", 1, {}))
        assert frames.receive(last)["error"] == "helper-refused"
        until(lambda: threading.active_count() - before <= MAX_CONNECTIONS)
        let_go.set()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Helper, threading.Event]]:
    """A helper with a verb that hangs in the kernel until the event comes."""
    path, let_go, locks = tmp_path / "helper.sock", threading.Event(), Locks()

    def hang(given: Mapping[str, Any], seconds: float) -> str:
        name, medium = given["name"], given["medium"]
        with locks.hold(f"{medium}/{name}", seconds, medium) as hold:
            if not given["well"]:
                hold.run_step("hanging", let_go.wait)
            hold.run_step("working", lambda: None)
        return "done"

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    server = Server(listener, {"hang": hang}, {os.getuid()})
    thread = threading.Thread(target=server.serve)
    thread.start()
    helper = Helper(str(path))
    yield helper, let_go
    let_go.set()
    helper.close()
    server.close()
    thread.join(10)
    until(lambda: not thread_limits.THREADS._waiting)


def test_a_thousand_hanging_requests_use_a_limited_number_of_threads(hanging) -> None:
    helper, let_go = hanging
    said: Counter[str] = Counter()

    def ask(numbers: range) -> None:
        for number in numbers:
            given = {"name": f"v{number}", "medium": "share", "well": False}
            try:
                helper.call("hang", timeout=0.02, **given)
            except errors.DriverError as error:
                said[error.code] += 1

    before = threading.active_count()
    clients = [
        threading.Thread(target=ask, args=(range(n, 1000, 8),)) for n in range(8)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert said == {
        "deadline-exceeded": thread_limits.MAX_EACH,
        "helper-busy": 1000 - thread_limits.MAX_EACH,
    }
    left = threading.active_count() - before
    assert left <= thread_limits.MAX_EACH + MAX_CONNECTIONS
    # Other work continues, and so does the share when its server is back.
    well = {"name": "w", "medium": "other", "well": True}
    assert helper.call("hang", timeout=5, **well) == "done"
    let_go.set()
    again = {"name": "v1", "medium": "share", "well": True}
    assert helper.call("hang", timeout=5, **again) == "done"


def test_helper_answers_and_continues_when_threads_run_out(tmp_path: Path) -> None:
    """With a low pids limit the helper ended; here its memory is the limit."""
    made = HelperProcess(tmp_path, "lvs")
    made.start("", "sh", "-c", 'ulimit -v 500000 && MALLOC_ARENA_MAX=1 exec "$@"', "sh")
    try:
        with contextlib.ExitStack() as stack:
            many = [
                stack.enter_context(made.open_connection())
                for _ in range(MAX_CONNECTIONS)
            ]
            turned_away = 0
            for each in many:
                with contextlib.suppress(OSError):
                    frames.send(each, CHECK)
                turned_away += frames.receive(each).get("error") == "helper-busy"
            assert turned_away
        assert made.process
        assert made.process.poll() is None
        until(lambda: _serves(made))
        assert "refuses it a further thread" in made.log_text()
    finally:
        made.stop()


def _serves(process: HelperProcess) -> bool:
    with process.open_connection() as connection, contextlib.suppress(OSError):
        return answered(connection)
    return False


# a hostile server


def _share(directory: Path, clock) -> OpenShare:
    mount = Mount(str(directory), 0, "nfs4", "nas:/srv")
    return OpenShare(
        os.open(directory, os.O_DIRECTORY), mount, KERNEL, is_exported, clock
    )


def test_endless_directory_is_refused_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 10)
    for number in range(11):
        share, asked = _share(tmp_path, lambda done: None), FileName(str(tmp_path))
        assert len(files.list_files(share, asked)) == number
        os.close(share.directory)
        (tmp_path / f"file-{number}").touch()
    with pytest.raises(errors.DriverError, match="more than 10 names"):
        files.list_files(_share(tmp_path, lambda done: None), asked)


def test_a_slow_directory_ends_at_the_deadline(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def late(_done: int) -> None:
        raise errors.DeadlineExceeded("share.list", 1)

    with pytest.raises(errors.DeadlineExceeded):
        files.list_files(_share(tmp_path, late), FileName(str(tmp_path)))


# the log


def test_refused_requests_are_logged(process: HelperProcess) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("no.such\nverb", {}),
        ("run", {"argv": ["sh", "-c", "id"]}),
        ("lvm.commit", {"device": "/etc/shadow"}),
        ("share.list", {"point": f"/home/{'0' * 32}"}),
    ]
    for verb, arguments in asked:
        with process.open_connection() as connection:
            frames.send(connection, messages.request(verb, 1, arguments))
            assert frames.receive(connection)["error"]
    lines = [line for line in process.log_text().splitlines() if "REFUSED" in line]
    for word in (r"no.such\nverb", "sh -c id", "/etc/shadow", "/home/000"):
        assert any(word in line for line in lines), word
