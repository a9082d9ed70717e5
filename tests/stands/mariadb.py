# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Debian's MariaDB with a database for Cinder, for one test."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.steps import sh
from tests.stands.servers import Server
from tests.stands.waiting import until


class MariaDB(Server):
    """One server with its own data, reached over a socket of its owner."""

    def __init__(self, directory: Path, *options: str) -> None:
        """``options``: more words of its command line."""
        super().__init__("mariadbd", directory)
        self._options, self._words = options, list[str]()
        self.socket = directory / "mariadb.sock"
        self._data = f"--datadir={directory / 'mariadb'}"
        self._first = directory / "first.sql"
        directory.chmod(0o700)

    @property
    def url(self) -> str:
        """Its URL for SQLAlchemy."""
        return f"mysql+pymysql://root@localhost/cinder?unix_socket={self.socket}"

    def start(self) -> None:
        """Create the data, start it, and wait until it answers."""
        user = f"--user={getpass.getuser()}"
        normal = "--auth-root-authentication-method=normal"
        # 10.11.19 reserves addresses for its most, 8 GiB: more than a quick guest has.
        most = "--loose-innodb-buffer-pool-size-max=512M"
        common = ["--no-defaults", user, self._data, most]
        sh(["mariadb-install-db", *common, "--skip-test-db", normal])
        self._first.write_text("CREATE DATABASE cinder CHARACTER SET utf8mb3;\n")
        more = ["--skip-networking", f"--socket={self.socket}"]
        # MariaDB's default of 128 MiB is for small machines.
        more += ["--innodb-buffer-pool-size=512M", *self._options]
        self._words = ["/usr/sbin/mariadbd", *common, *more]
        self._run(f"--init-file={self._first}")

    def start_again(self) -> None:
        """Start it with the data that it has, after a kill."""
        self.socket.unlink(missing_ok=True)
        self._run()

    def _run(self, *more: str) -> None:
        self.run([*self._words, *more])
        until(self.socket.exists, "MariaDB listens")

    def execute(self, statement: str) -> str:
        """Read or change rows of Cinder; return what it prints."""
        return sh([*self._client, "--skip-column-names", "--execute", statement])

    def waits(self) -> bool:
        """Whether a client waits until it may write a table."""
        return "Waiting for table" in self.execute("SHOW PROCESSLIST")

    @contextmanager
    def read_only(self, table: str) -> Iterator[None]:
        """Let nobody write a table of Cinder in the block, as a dump does."""
        words, piped = [*self._client, "--unbuffered"], subprocess.PIPE
        with subprocess.Popen(words, stdin=piped, stdout=piped) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(f"LOCK TABLES {table} READ; SELECT 1;\n".encode())
            client.stdin.flush()
            client.stdout.readline()
            yield

    @property
    def _client(self) -> list[str]:
        where = [f"--socket={self.socket}", "--user=root", "cinder"]
        return ["mariadb", "--no-defaults", *where]
