# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Servers on loopback for one test: each a child process, stopped by its id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil

from tests.stands.waiting import until

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
_RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int, address: str = LOOPBACK) -> bool:
    """Whether a process listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def children(process: int) -> list[int]:
    """The processes below this one, of all generations."""
    try:
        below = psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child.pid for child in below]


def runs(process: int) -> bool:
    """Whether this process has not ended."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Server:
    """One process, with its output in a file."""

    def __init__(self, name: str, directory: Path) -> None:
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, words: list[str], **env: str) -> None:
        """Start it; its output is appended to its file."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                words, stdout=out, stderr=out, cwd=ROOT, env={**os.environ, **env}
            )

    @property
    def pid(self) -> int:
        """The id of its process, which must have been started."""
        assert self.process is not None
        return self.process.pid

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop it, and wait for its end; no process that it started is left."""
        if self.process is None:
            return
        below = children(self.process.pid)
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        for each in filter(runs, below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        until(lambda: not any(map(runs, below)), f"what {self.log.stem} started ended")

    def close(self) -> None:
        """Stop it for good."""
        self.end()


class Broker(Server):
    """RabbitMQ with its own ports and data; every client may be its guest."""

    def __init__(self, directory: Path, address: str = LOOPBACK) -> None:
        super().__init__("rabbitmq", directory)
        self.port, self._address = free_port(), address
        self._pid = directory / "pid"
        (directory / "plugins").write_text("[].")
        (directory / "rabbitmq.conf").write_text("loopback_users = none\n")
        self._env = {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"lunshare{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": address,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "db"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(self._pid),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    @property
    def url(self) -> str:
        """Its URL for clients."""
        return f"rabbit://guest:guest@{self._address}:{self.port}/"

    def start(self) -> None:
        """Start it with its existing data, and wait until it listens."""
        self.run([_RABBIT], **self._env)
        until(lambda: listens(self.port, self._address), "RabbitMQ listens")

    def messages(self) -> dict[str, int]:
        """How many messages each queue holds, also those that a client works on."""
        words = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", "--no-table-headers"]
        listed = subprocess.run(
            [*words, "list_queues", "name", "messages"],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._env},
        ).stdout.splitlines()
        return {name: int(count) for name, count in map(str.split, listed)}

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop Erlang; the script that started it ends with it."""
        if self.process is not None:
            os.kill(int(self._pid.read_text()), number)
            self.process.wait(60)
            self.process = None

    def close(self) -> None:
        """Stop it, and the port mapper that Erlang started."""
        self.end()
        words = ["epmd", "-port", self._env["ERL_EPMD_PORT"], "-kill"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
