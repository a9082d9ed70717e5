# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Sockets that systemd keeps for the next process; the test is systemd.

With systemd itself: tests/system/test_units.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stands.daemon import FAKE, Lunshared
from tests.stands.servers import ROOT, free_port

_BYTES = 4096
#: As systemd starts a process: its descriptors from 3 on, its own id in LISTEN_PID.
_WITH_SOCKET = """
import os, sys
kept = int(sys.argv[1])
if kept != 3:
    os.dup2(kept, 3)
    os.close(kept)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Keeper:
    """What a daemon has sent to the socket of systemd."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(60)
        self.path = str(path)
        self.kept: dict[str, int] = {}

    def wait_until(self, wanted: str) -> None:
        """Read until a message has this line, and do what the messages say."""
        lines: list[str] = []
        while wanted not in lines:
            data, fds, _, _ = socket.recv_fds(self._socket, _BYTES, 4)
            lines = data.decode().splitlines()
            words = dict(line.split("=", 1) for line in lines)
            if "FDSTORE" in words:
                (self.kept[words["FDNAME"]],) = fds
            elif "FDSTOREREMOVE" in words:
                os.close(self.kept.pop(words["FDNAME"]))
            else:
                for fd in fds:
                    os.close(fd)

    def close(self) -> None:
        self._socket.close()
        for fd in self.kept.values():
            os.close(fd)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with contextlib.closing(Keeper(tmp_path / "keeper")) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Lunshared]:
    made = Lunshared(tmp_path, "[DEFAULT]\n", FAKE)
    yield made
    made.end()


def _start_with(daemon: Lunshared, keeper: Keeper, count: str = "1") -> None:
    """Start it with the one socket that is kept, and with this count of them."""
    ((name, fd),) = keeper.kept.items()
    env = {"LISTEN_FDS": count, "LISTEN_FDNAMES": name}
    environment = {**os.environ, **env, "NOTIFY_SOCKET": keeper.path}
    words = [sys.executable, "-c", _WITH_SOCKET, str(fd), *daemon.argv]
    with daemon.log.open("ab") as out:
        daemon.process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stderr=out, stdout=out, pass_fds=[fd]
        )


def test_a_client_that_came_between_two_processes_is_answered(
    daemon: Lunshared, keeper: Keeper
) -> None:
    daemon.launch(NOTIFY_SOCKET=keeper.path)
    keeper.wait_until("READY=1")
    assert list(keeper.kept) == [f"127.0.0.1-{daemon.port}"]
    daemon.end()
    with socket.create_connection(("127.0.0.1", daemon.port), 60) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        _start_with(daemon, keeper)
        assert client.recv(_BYTES).startswith(b"HTTP/1.1 200 ")


def test_a_kept_socket_that_is_not_wanted_is_closed_before_others_are_bound(
    daemon: Lunshared, keeper: Keeper
) -> None:
    daemon.launch(NOTIFY_SOCKET=keeper.path)
    keeper.wait_until("READY=1")
    daemon.end()
    every = f"0.0.0.0:{daemon.port}"  # cannot be bound while the other is open
    (daemon.path / "lunshare.conf").write_text(f"[DEFAULT]\nmetrics_listen = {every}\n")
    daemon.listen = [f"127.0.0.1:{free_port()}"]
    _start_with(daemon, keeper)
    keeper.wait_until("READY=1")
    assert f"0.0.0.0-{daemon.port}" in keeper.kept
    assert f"127.0.0.1-{daemon.port}" not in keeper.kept


@pytest.mark.parametrize("count", ["3", "1000"])
def test_what_is_no_listening_socket_is_left_alone(
    daemon: Lunshared, keeper: Keeper, count: str
) -> None:
    """A wrong count names descriptors that are closed, or of something else."""
    daemon.launch(NOTIFY_SOCKET=keeper.path)
    keeper.wait_until("READY=1")
    daemon.end()
    _start_with(daemon, keeper, count)
    keeper.wait_until("READY=1")
    assert daemon.process is not None
    assert daemon.process.poll() is None
