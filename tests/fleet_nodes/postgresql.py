# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL of Debian with its own data, for Cinder and for Glance."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from tests.lab.steps import sh
from tests.stands.servers import Server, free_port, listens
from tests.stands.waiting import until

CINDER = "cinder"
GLANCE = "glance"
_USER = "cinder"
_OWNER = "postgres"  # of Debian's package; the server refuses to run as root


class PostgreSQL(Server):
    """One server at this address; everyone in its network is its one user."""

    def __init__(self, directory: Path, address: str, network: str) -> None:
        super().__init__("postgresql", directory)
        self.port, self._address, self._network = free_port(), address, network
        # Its user may not enter every directory in which the tests run.
        self._home = Path(tempfile.mkdtemp(prefix="lunshare-postgresql-"))
        shutil.chown(self._home, _OWNER, _OWNER)

    def url(self, database: str) -> str:
        """The URL of a database for SQLAlchemy."""
        return f"postgresql+psycopg2://{_USER}@{self._address}:{self.port}/{database}"

    def start(self) -> None:
        """Create the data and the databases, and wait until it listens."""
        data = self._home / "data"
        common = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        sh([*_as_owner("initdb"), *common, "--username", _USER, "--pgdata", data])
        with (data / "pg_hba.conf").open("a") as access:
            access.write(f"host all {_USER} {self._network} trust\n")
        words = [*_as_owner("postgres"), "-D", data, "-p", self.port, "-k", self._home]
        words += [
            "-c",
            f"listen_addresses={self._address}",
            "-c",
            "max_connections=300",
        ]
        self.run([str(word) for word in words])
        until(lambda: listens(self.port, self._address), "PostgreSQL listens")
        for database in (CINDER, GLANCE):
            sh([*self._client("createdb"), database])

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query in Cinder's database."""
        asked = f"SELECT coalesce(json_agg(found), '[]') FROM ({query}) AS found"
        return list(json.loads(sh([*self._client("psql"), "-Atc", asked, CINDER])))

    def end(self, number: int = signal.SIGINT) -> None:
        """Stop it and its connections, and remove its data."""
        super().end(number)
        shutil.rmtree(self._home, ignore_errors=True)

    def _client(self, program: str) -> list[str]:
        where = ["-h", self._address, "-p", str(self.port), "-U", _USER]
        return [str(_programs() / program), *where]


def _as_owner(program: str) -> list[str]:
    become = ["setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--clear-groups"]
    return [*become, "--", str(_programs() / program)]


def _programs() -> Path:
    """Those of the newest version; Debian's own wrappers want a cluster of theirs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    assert found, "apt-get install postgresql"
    return found[-1]


def _version(programs: Path) -> float:
    return float(os.path.basename(programs.parent))
