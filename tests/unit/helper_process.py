# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper as a separate process, with the tree's filters, under our own uid."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from lunshare.drivers.helper_client import Helper

FILTERS = Path(__file__).parents[2] / "rootwrap.d"


class HelperProcess:
    """``programs`` do nothing and succeed, in the place of those of the node."""

    def __init__(self, directory: Path, programs: str = "") -> None:
        self.directory, self.path = directory, directory / "helper.sock"
        self.log = directory / "helper.log"
        self._rules, self._bin = directory / "rootwrap.d", directory / "bin"
        for each in (self._rules, self._bin):
            each.mkdir(0o755)
        for source in FILTERS.iterdir():
            shutil.copyfile(source, self._rules / source.name)
            (self._rules / source.name).chmod(0o644)
        for name in programs.split():
            (self._bin / name).write_text("#!/bin/sh\n")
            (self._bin / name).chmod(0o755)
        self._clients: list[Helper] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, served: str, *before: str) -> None:
        """Start it with these lines of helper.conf, by the command ``before``."""
        conf = self.directory / "helper.conf"
        conf.write_text(f"[helper]\n{served}\n")
        conf.chmod(0o644)
        user = pwd.getpwuid(os.getuid()).pw_name
        line = [*before, sys.executable, "-m", "lunshare.helper.main", "--user", user]
        line += ["--socket", str(self.path), "--filters", str(self._rules)]
        line += ["--exec-dirs", str(self._bin), "--config", str(conf)]
        name = self.directory / "notify"
        name.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(name))
            notify.settimeout(30)
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    line, env={**os.environ, "NOTIFY_SOCKET": str(name)}, stderr=log
                )
            assert notify.recv(100) == b"READY=1"

    def client(self) -> Helper:
        """A client that is closed with the helper."""
        self._clients.append(Helper(str(self.path)))
        return self._clients[-1]

    def open_connection(self) -> socket.socket:
        """A bare connection."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(20)
        connection.connect(str(self.path))
        return connection

    def log_text(self) -> str:
        """Its log."""
        return self.log.read_text()

    def stop(self) -> None:
        """As systemd stops it."""
        for client in self._clients:
            client.close()
        if self.process:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            self.process.wait()
            self.process = None
