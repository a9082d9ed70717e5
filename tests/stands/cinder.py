# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder on one machine: three services, MariaDB and RabbitMQ."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.lab.steps import sh, step
from tests.stands import cinder_programs
from tests.stands.cinder_programs import MANAGE, SCHEDULER, VOLUME
from tests.stands.mariadb import MariaDB
from tests.stands.servers import Broker, Server, children, free_port
from tests.stands.waiting import until

_START = 300.0  # it takes two minutes on a busy machine
_NOTE = 3000


class Cinder:
    """The processes in one directory; who inherits says how they are configured."""

    #: Of cinder-api.
    api_processes, api_threads = 1, 8

    def __init__(self, directory: Path, *database_options: str) -> None:
        self.directory, self.port = directory, free_port()
        self.database = MariaDB(directory, *database_options)
        self.broker = Broker(directory)
        self.servers = {
            name: Server(name, directory)
            for name in ("cinder-scheduler", "cinder-volume", "cinder-api")
        }
        self.config = directory / "cinder.conf"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.python()
        with self._stack, step("start Cinder"):
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # what a stack says

    def configure(self) -> None:
        """Write cinder.conf."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether cinder-api answers, and its scheduler knows the backends."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Start what cinder-volume needs, before cinder.conf is written."""

    def volume_environ(self) -> Mapping[str, str]:
        """The environment of cinder-volume, beyond that of this process."""
        return {}

    def python(self) -> Path:
        """The Python that has Cinder."""
        return cinder_programs.python()

    def paste(self) -> Path:
        """The configuration of its WSGI pipeline."""
        return self.python().parents[1] / "etc/cinder/api-paste.ini"

    # the same for all

    @property
    def log(self) -> str:
        """What cinder-volume has written."""
        return self.servers["cinder-volume"].log.read_text()

    def configuration(self, options: str, sections: str = "") -> str:
        """cinder.conf; ``options``: lines of [DEFAULT], then whole sections.

        What ``sections`` say again overrides.
        """
        return (
            f"[DEFAULT]\ntransport_url = {self.broker.url}\n"
            f"state_path = {self.directory}\nmy_ip = 127.0.0.1\n"
            f"api_paste_config = {self.paste()}\n"
            "quota_volumes = -1\nquota_gigabytes = -1\nquota_snapshots = -1\n"
            f"graceful_shutdown_timeout = 5\n{options}\n"
            f"[database]\nconnection = {self.database.url}\n"
            f"[oslo_concurrency]\nlock_path = {self.directory}/lock\n"
            f"[coordination]\nbackend_url = file://{self.directory}/coordination\n"
            f"{sections}"
        )

    def command(self, program: str) -> list[str]:
        """The words that run a program of Cinder with this cinder.conf."""
        return cinder_programs.command(program, self.config, interpreter=self.python())

    def start_volume(self) -> None:
        """Start cinder-volume."""
        words = self.command(VOLUME)
        self.servers["cinder-volume"].run(words, **self.volume_environ())

    def start_api(self) -> None:
        """Start cinder-api."""
        words = cinder_programs.api_command(
            self.config, self.port, self.api_processes, self.api_threads, self.python()
        )
        self.servers["cinder-api"].run(words)

    def stop_volume(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to every process of cinder-volume, and wait for their end."""
        server = self.servers["cinder-volume"]
        if number == signal.SIGKILL:
            for child in children(server.pid):
                os.kill(child, number)
        server.end(number)

    def _start(self) -> None:
        self._stack.callback(self.database.end)
        self.database.start()
        self._stack.callback(self.broker.close)
        self.broker.start()
        self.prepare()
        self.configure()
        sh([*self.command(MANAGE), "db", "sync"])
        for server in self.servers.values():
            self._stack.callback(server.end)
        self.servers["cinder-scheduler"].run(self.command(SCHEDULER))
        self.start_volume()
        self.start_api()
        try:
            until(self._answers, f"Cinder answers; see {self.directory}", _START)
        except AssertionError as error:
            error.add_note(self.log[-_NOTE:])
            raise

    def _answers(self) -> bool:
        for server in self.servers.values():
            if server.process is None or server.process.poll() is not None:
                raise RuntimeError(f"it ended: {server.log.read_text()[-_NOTE:]}")
        return self.is_ready()
