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

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.bench import process_costs
from tests.bench.http import Client
from tests.stands.cinder import Cinder
from tests.stands.servers import ROOT

_HOSTS = 3


class CinderPeer(Cinder):
    """Cinder's three services with their database and message bus.

    ``options`` as of the daemon: the lines of [DEFAULT], and whole sections.
    """

    api_processes = 2

    def __init__(self, state: Path, options: str = "auth_strategy = noauth") -> None:
        super().__init__(state)
        self.state, self._options = state, options

    def __enter__(self) -> Self:
        super().__enter__()
        Client(self.port).shared_volume()
        return self

    def fill(self, count: int) -> list[str]:
        """Write ``count`` volumes, each attached to three hosts; their ids."""
        client = Client(self.port)
        first = client.shared_volume()
        for host in range(_HOSTS):
            client.complete(client.attach(first, f"host-{host}"))
        words = ["-m", "tests.bench.cinder_rows", self.database.url, first]
        words.append(str(count))
        return subprocess.run(
            [str(self.python()), *words],
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

    def volume_environ(self) -> Mapping[str, str]:
        """With the driver without storage."""
        return {"PYTHONPATH": str(ROOT)}

    def configure(self) -> None:
        """Write cinder.conf."""
        backend = (
            "[fake]\nvolume_backend_name = fake\n"
            "volume_driver = tests.bench.cinder_driver.NoStorage\n"
        )
        options = f"host = peer\nenabled_backends = fake\n{self._options}"
        self.config.write_text(self.configuration(options, backend))

    def is_ready(self) -> bool:
        """Whether both services are up, and the scheduler knows the pool."""
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
        for server in self.servers.values():
            if server.process is not None:
                yield from process_costs.tree(server.process.pid)
