# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The peer of the control plane: Cinder 29.0.0 on this machine, as it is operated.

All its parts listen on loopback or on a socket, on a disk of ours, and end with it:

- MariaDB and RabbitMQ of Debian, with their defaults: a commit reaches the disk, as
  ours does. SQLite has one writer at a time; oslo.messaging's fake bus works within
  one process only.
- cinder-api in uWSGI, as DevStack runs it, behind uWSGI's own HTTP router, which keeps
  connections open as our daemon does: two processes, for two processors, with threads
  for the requests that wait for cinder-volume.
- cinder-scheduler, and cinder-volume with a driver without storage
  (``tests.bench.cinder_driver``), as our daemon has its fake.

No quotas, no debug log. Who calls is proven as with our daemon: by the same Keystone.
"""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench import process_costs
from tests.bench.http import Client
from tests.lab.steps import sh, step
from tests.stands.cinder_programs import (
    MANAGE,
    SCHEDULER,
    VOLUME,
    api_command,
    command,
    python,
)
from tests.stands.servers import ROOT, Broker, Server, free_port
from tests.stands.waiting import until

_PROCESSES = 2
_HOSTS = 3
_START = 300.0


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


class CinderPeer:
    """Cinder's three services with their database and message bus.

    ``options`` as of the daemon: the lines of [DEFAULT], and whole sections.
    """

    def __init__(self, state: Path, options: str = "auth_strategy = noauth") -> None:
        self.state, self.port, self._options = state, free_port(), options
        self._database, self._broker = MariaDB(state), Broker(state)
        self._config = state / "cinder.conf"
        self._servers = {
            name: Server(name, state)
            for name in ("cinder-scheduler", "cinder-volume", "cinder-api")
        }
        self._stack = ExitStack()

    def __enter__(self) -> CinderPeer:
        python()
        with self._stack, step("start Cinder"):
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def fill(self, count: int) -> list[str]:
        """Write ``count`` volumes, each attached to three hosts; their ids."""
        client = Client(self.port)
        first = client.shared_volume()
        for host in range(_HOSTS):
            client.complete(client.attach(first, f"host-{host}"))
        words = ["-m", "tests.bench.cinder_rows", self._database.url, first]
        words.append(str(count))
        return subprocess.run(
            [str(python()), *words],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        ).stdout.split()

    def memory(self) -> float:
        """PSS of Cinder's own processes, in MiB: not of its database and its bus."""
        return process_costs.pss(self._processes())

    def cpu(self) -> float:
        """Seconds of CPU that Cinder's own processes have used so far."""
        return process_costs.cpu(self._processes())

    def _start(self) -> None:
        self._stack.callback(self._database.end)
        self._database.start()
        self._stack.callback(self._broker.close)
        self._broker.start()
        self._configure()
        sh(command(MANAGE, self._config, "db", "sync"))
        for server in self._servers.values():
            self._stack.callback(server.end)
        env = {"PYTHONPATH": str(ROOT)}
        self._servers["cinder-scheduler"].run(command(SCHEDULER, self._config))
        self._servers["cinder-volume"].run(command(VOLUME, self._config), **env)
        self._servers["cinder-api"].run(
            api_command(self._config, self.port, _PROCESSES)
        )
        until(self._answers, f"Cinder answers; see {self.state}", _START)
        Client(self.port).shared_volume()

    def _configure(self) -> None:
        state = self.state
        paste = python().parents[1] / "etc/cinder/api-paste.ini"
        self._config.write_text(
            f"[DEFAULT]\ntransport_url = {self._broker.url}\nstate_path = {state}\n"
            f"host = peer\nmy_ip = 127.0.0.1\n"
            f"api_paste_config = {paste}\nenabled_backends = fake\n"
            "quota_volumes = -1\nquota_gigabytes = -1\n"
            f"graceful_shutdown_timeout = 5\n{self._options}\n"
            "[fake]\nvolume_backend_name = fake\n"
            "volume_driver = tests.bench.cinder_driver.NoStorage\n"
            f"[database]\nconnection = {self._database.url}\n"
            f"[oslo_concurrency]\nlock_path = {state}/lock\n"
            f"[coordination]\nbackend_url = file://{state}/coordination\n"
        )

    def _answers(self) -> bool:
        for server in self._servers.values():
            if server.process is None or server.process.poll() is not None:
                raise RuntimeError(f"it ended: {server.log}")
        client = Client(self.port)
        try:
            services = client("GET", "/os-services")["services"]
            up = {each["binary"] for each in services if each["state"] == "up"}
            # The scheduler answers this one, and knows its pools some time later.
            return {"cinder-scheduler", "cinder-volume"} <= up and bool(
                client("GET", "/scheduler-stats/get_pools")["pools"]
            )
        except (OSError, RuntimeError):
            return False

    def _processes(self) -> Iterator[int]:
        for server in self._servers.values():
            if server.process is not None:
                yield from process_costs.tree(server.process.pid)
