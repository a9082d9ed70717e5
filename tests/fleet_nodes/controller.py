# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The controller: PostgreSQL, RabbitMQ, Keystone, Glance, cinder-api, cinder-scheduler.

Cinder is unpatched, and nothing of lunshare is here. The database, the bus and Glance
listen on the network of the nodes, the other servers on loopback.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.bench import http
from tests.bench.http import Client
from tests.fleet_nodes import glance, network
from tests.fleet_nodes.glance import Glance
from tests.fleet_nodes.postgresql import CINDER, GLANCE, PostgreSQL
from tests.lab.steps import sh
from tests.stands import quick_guest
from tests.stands.cinder_programs import MANAGE, SCHEDULER, api_command, command, python
from tests.stands.keystone import Keystone
from tests.stands.servers import Broker, Server, free_port
from tests.stands.waiting import until
from tests.tempest import pins

_START = 300.0
_ACCESS = """
SELECT volume.host, coalesce(volume._name_id, volume.id) AS disk,
attachment.attach_mode AS mode, attachment.connector
FROM volume_attachment AS attachment JOIN volumes AS volume
ON volume.id = attachment.volume_id
WHERE NOT attachment.deleted AND NOT volume.deleted
AND attachment.attach_status IN ('attaching', 'attached')
AND attachment.connector IS NOT NULL
"""


class Controller:
    """Its servers, and what a test asks them."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.port = directory, free_port()
        clients = f"{network.CONTROLLER}/{quick_guest.PREFIX}"
        self.database = PostgreSQL(directory, network.CONTROLLER, clients)
        self._broker = Broker(directory, network.CONTROLLER)
        self.keystone = Keystone(pins.venv(), directory / "keystone")
        self.glance = Glance(directory / "glance", glance.venv(), network.CONTROLLER)
        self._servers = {
            name: Server(name, directory) for name in ("cinder-scheduler", "cinder-api")
        }
        self._config = directory / "cinder.conf"
        self._stack, self._clients = ExitStack(), list[Client]()

    def start(self) -> None:
        """Start all of it; cinder-api knows no node yet."""
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()

    def close(self) -> None:
        """Stop all of it."""
        for client in self._clients:
            client.close()
        self._stack.close()

    def client(self) -> Client:
        """A client of cinder-api, with the administrator's token."""
        made = Client(self.port)
        self._clients.append(made)
        return made

    @property
    def shared_options(self) -> str:
        """What the cinder.conf of every machine has: [DEFAULT], then [database]."""
        return (
            f"[DEFAULT]\ntransport_url = {self._broker.url}\n"
            "rpc_response_timeout = 30\nreport_interval = 2\nservice_down_time = 30\n"
            "periodic_interval = 2\nperiodic_fuzzy_delay = 0\n"
            "backend_stats_polling_interval = 3\ngraceful_shutdown_timeout = 5\n"
            f"glance_api_servers = {self.glance.url}\n"
            f"[database]\nconnection = {self.database.url(CINDER)}\n"
        )

    def services(self) -> dict[str, str]:
        """State of each cinder-volume by its host."""
        listed = self._ask("/os-services?binary=cinder-volume")["services"]
        return {each["host"]: each["state"] for each in listed}

    def reports(self) -> dict[str, str]:
        """When each cinder-volume has reported last, by its host."""
        listed = self._ask("/os-services?binary=cinder-volume")["services"]
        return {each["host"]: each["updated_at"] for each in listed}

    def pools(self) -> dict[str, dict[str, Any]]:
        """The stats that the scheduler has, by node@backend."""
        listed = self._ask("/scheduler-stats/get_pools?detail=true")["pools"]
        return {each["name"].partition("#")[0]: each["capabilities"] for each in listed}

    def wanted_access(self, node: str) -> dict[str, dict[str, str]]:
        """What Cinder's database says: the mode of each initiator, by disk.

        After a migration by Cinder, the disk has another id than the volume.
        """
        found: dict[str, dict[str, str]] = {}
        for row in self.database.rows(_ACCESS):
            if row["host"].partition("@")[0] == node:
                name = json.loads(row["connector"])["initiator"]
                found.setdefault(row["disk"], {})[name] = row["mode"]
        return found

    def _ask(self, path: str) -> Any:
        """Of a connection of its own: threads of a test ask, too."""
        client = Client(self.port, keep=False)
        try:
            return client("GET", path)
        finally:
            client.close()

    def _start(self) -> None:
        self._stack.callback(self.database.end)
        self.database.start()
        self._stack.callback(self._broker.close)
        self._broker.start()
        self._stack.callback(self.keystone.close)
        self.keystone.start()
        self._configure()
        sh(command(MANAGE, self._config, "db", "sync"))
        self.keystone.prepare()
        self.keystone.announce(f"http://127.0.0.1:{self.port}/v3/$(project_id)s")
        self.keystone.add_service("image", self.glance.url)
        self._stack.callback(self.glance.close)
        self.glance.start(self.database.url(GLANCE), self.keystone)
        http.use_token(self.keystone.token)
        for server in self._servers.values():
            self._stack.callback(server.end)
        self._servers["cinder-scheduler"].run(command(SCHEDULER, self._config))
        self._servers["cinder-api"].run(api_command(self._config, self.port, 2))
        until(self._answers, f"Cinder answers; see {self._directory}", _START)

    def _configure(self) -> None:
        paste = python().parents[1] / "etc/cinder/api-paste.ini"
        self._config.write_text(
            f"{self.shared_options}"
            f"[DEFAULT]\nauth_strategy = keystone\napi_paste_config = {paste}\n"
            f"state_path = {self._directory}\nmy_ip = {network.CONTROLLER}\n"
            "quota_volumes = -1\nquota_gigabytes = -1\nquota_snapshots = -1\n"
            f"[oslo_concurrency]\nlock_path = {self._directory}/lock\n"
            f"[coordination]\nbackend_url = file://{self._directory}/coordination\n"
            f"{self.keystone.options}"
        )

    def _answers(self) -> bool:
        try:
            return bool(self._ask("/os-services")["services"])
        except (OSError, RuntimeError, HTTPException):
            return False
