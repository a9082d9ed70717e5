# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Cinder 29.0.0's scheduler with its own database, and a client of its RPC.

Its ``services`` table contains the volume services that are alive. cinder-volume writes
its heartbeats there; lunshare writes in no database of another service. So the test
writes them once, and the services count as alive for an hour.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import subprocess
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import installed
from tests.installed import required
from tests.lab.environment import FURTHER
from tests.lab.steps import sh
from tests.scheduler.servers import Server, until

SCHEDULER = "from cinder.cmd.scheduler import main; main()"
MANAGE = "from cinder.cmd.manage import main; main()"
# Beside it: a WSGI server and MariaDB's client, and what lunshare's drivers need
# (tests/fleet): pip finds versions that both allow.
_BESIDE = ["pyuwsgi>=2.0.30", "PyMySQL>=1.1", *required()]
_FILTERS = "AvailabilityZoneFilter,CapacityFilter,CapabilitiesFilter"

# One request per line, one answer per line. validate_host_capacity runs all
# filters and weighers of the scheduler, and returns whether this backend passes.
_ASK = """
import json, sys
from cinder import context, objects, rpc
from oslo_config import cfg
from cinder.common import config
objects.register_all()
cfg.CONF(sys.argv[1:], project="cinder")
rpc.init(cfg.CONF)
from cinder.scheduler import rpcapi
api, admin = rpcapi.SchedulerAPI(), context.get_admin_context()

def passes(backend, size, specs):
    properties = {"size": size, "availability_zone": "nova"}
    request = {
        "volume_id": "0", "volume_type": {"extra_specs": specs},
        "volume_properties": properties, "resource_properties": properties,
    }
    return api.validate_host_capacity(admin, backend, request, {})

calls = {"pools": lambda: api.get_pools(admin), "passes": passes}
for line in sys.stdin:
    name, arguments = json.loads(line)
    try:
        answer = calls[name](*arguments)
    except Exception as error:  # the bus was unavailable: retry
        print(error, file=sys.stderr)
        answer = None
    print(json.dumps(answer, default=str), flush=True)
"""


@functools.cache
def python() -> Path:
    """A Python with Cinder, installed once, in the lab's cache."""
    return installed.venv("cinder-here", [*FURTHER["cinder"], *_BESIDE]) / "bin/python"


def command(program: str, config: Path, *more: str) -> list[str]:
    """The words that start one of its programs with this configuration file."""
    words = [str(python()), "-W", "ignore", "-c", program]
    return [*words, "--config-file", str(config), *more]


class Cinder:
    """A database, a scheduler and its client."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._database = directory / "cinder.sqlite"
        self._config = directory / "cinder.conf"
        self._config.write_text(
            f"[DEFAULT]\ntransport_url = {url}\nstate_path = {directory}\n"
            f"host = scheduler\nscheduler_default_filters = {_FILTERS}\n"
            "service_down_time = 3600\nrpc_response_timeout = 5\n"
            f"[database]\nconnection = sqlite:///{self._database}\n"
            f"[oslo_concurrency]\nlock_path = {directory}/lock\n"
        )
        self.scheduler = Server("cinder-scheduler", directory)
        sh(command(MANAGE, self._config, "db", "sync"))
        self._asking: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the scheduler; it listens on the bus some seconds later."""
        self.scheduler.run(command(SCHEDULER, self._config))

    def alive(self, *hosts: str) -> None:
        """Write into the ``services`` table that these volume services are alive."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
        row = {
            "created_at": now,
            "updated_at": now,
            "deleted": 0,
            "binary": "cinder-volume",
            "topic": "cinder-volume",
            "report_count": 1,
            "disabled": 0,
            "availability_zone": "nova",
            "frozen": 0,
            # The versions of 29.0.0: a scheduler uses the oldest of all services.
            "rpc_current_version": "3.20",
            "object_current_version": "1.39",
        }
        with sqlite3.connect(self._database, timeout=30) as database:
            for host in hosts:
                put = {**row, "host": host, "uuid": str(uuid.uuid4())}
                values = ", ".join(f":{key}" for key in put)
                database.execute(
                    f"INSERT INTO services ({', '.join(put)}) VALUES ({values})",
                    put,
                )
        database.close()

    def pools(self) -> dict[str, dict[str, Any]]:
        """The result of its get_pools, by the pool's name; empty without an answer."""
        return {pool["name"]: pool["capabilities"] for pool in self._ask("pools") or ()}

    def passes(self, pool: str, size: int, specs: Mapping[str, str]) -> bool:
        """Whether this pool passes its filters for a volume of such a type."""
        return bool(self._ask("passes", pool, size, specs))

    def knows(self, *pools: str) -> None:
        """Wait until it has reports of these pools."""
        until(lambda: set(pools) <= set(self.pools()), f"Cinder knows {pools}")

    def gets_new_report(self, pool: str) -> None:
        """Wait until it has a report of this pool that is newer than this call."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
        until(
            lambda: self.pools().get(pool, {}).get("timestamp", "") > now,
            "a new report",
        )

    def close(self) -> None:
        """Stop both."""
        if self._asking:
            self._asking.communicate(timeout=30)
        self.scheduler.end()

    def _ask(self, name: str, *arguments: object) -> Any:
        if self._asking is None:
            with (self._directory / "asking.log").open("w") as log:
                self._asking = subprocess.Popen(
                    command(_ASK, self._config),
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        assert self._asking.stdin
        assert self._asking.stdout
        self._asking.stdin.write(json.dumps([name, arguments]) + "\n")
        self._asking.stdin.flush()
        return json.loads(self._asking.stdout.readline())


if __name__ == "__main__":
    python()
