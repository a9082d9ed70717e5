# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Keystone with fernet tokens on SQLite, as one process on loopback.

Its database (schema, roles, administrator) and its keys are made once, and each run
starts with a copy of them.
"""

from __future__ import annotations

import getpass
import grp
import json
import os
import shutil
from pathlib import Path
from typing import Any

import requests

from tests.lab import cache
from tests.lab.steps import sh, step
from tests.stands.servers import Server, free_port, listens
from tests.stands.waiting import until
from tests.tempest import pins

PASSWORD = "tempest-on-loopback"
SERVICE = "lunshare"  # the user with which lunshared validates tokens
REGION = "RegionOne"
PROJECT_NAME = "admin"  # of the administrator, made by the bootstrap

# Few rounds: Tempest creates two hundred users. The cache is this process's memory.
_CONFIG = """
[DEFAULT]
use_stderr = true
[database]
connection = sqlite:///{directory}/keystone.sqlite
sqlite_synchronous = false
[identity]
password_hash_rounds = 4
[cache]
backend = dogpile.cache.memory
[fernet_tokens]
key_repository = {directory}/fernet
[fernet_receipts]
key_repository = {directory}/fernet
[credential]
key_repository = {directory}/credential
"""
# What lunshared needs in order to ask it.
_OPTIONS = """
[keystone_authtoken]
auth_url = {url}
www_authenticate_uri = {url}
interface = public
auth_type = password
username = {user}
password = {password}
user_domain_id = default
project_name = service
project_domain_id = default
"""
# Several commands of keystone-manage, with one import of Keystone.
_MANAGE = """
import json, os, sys
from keystone.cmd.manage import main
for words in json.loads(sys.argv.pop()):
    child = os.fork()
    if not child:
        sys.argv[2:] = words
        main()
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{words[0]} failed")
"""
# With one thread: two at once find SQLite locked, and answer 500.
_SERVE = """
import sys
from keystone.server.wsgi import initialize_public_application
from werkzeug.serving import make_server
port = int(sys.argv.pop())
make_server("127.0.0.1", port, initialize_public_application()).serve_forever()
"""


class Keystone:
    """A started Keystone with the roles of its bootstrap and one administrator."""

    def __init__(
        self, venv: Path, directory: Path, database: Path | None = None
    ) -> None:
        """``database``: what ``prepared`` has made, on a machine that can not."""
        shutil.copytree(database or prepared(venv), directory)
        self._python, self._directory = venv / "bin/python", directory
        _configure(directory)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v3"
        #: The id of the administrator's project, and a token of it.
        self.project = self.token = ""
        self._server = Server("keystone", directory)
        self._session = requests.Session()
        self._endpoints: list[str] = []

    @property
    def options(self) -> str:
        """The section of lunshare.conf that lets it validate tokens."""
        return _OPTIONS.format(url=self.url, user=SERVICE, password=PASSWORD)

    def start(self) -> None:
        """Start it; it listens some seconds later."""
        words = [str(self._python), "-W", "ignore", "-c", _SERVE, str(self.port)]
        where = {"OS_KEYSTONE_CONFIG_DIR": str(self._directory), "PYTHONPATH": ""}
        self._server.run(words, **where)

    def prepare(self) -> None:
        """Wait until it listens; log in, and create what lunshared needs."""
        until(lambda: listens(self.port), "Keystone listens", 300)
        self._log_in()
        self._create("region", id=REGION)
        self.add_service("identity", self.url)
        project = self._create("project", name="service", domain_id="default")
        user = self._create(
            "user", name=SERVICE, password=PASSWORD, domain_id="default"
        )
        for role in ("admin", "service"):
            self._grant(project, user, role)

    def announce(self, endpoint: str) -> None:
        """Put Block Storage into its catalog, or change where it is."""
        for known in self._endpoints:
            self._call("PATCH", f"/endpoints/{known}", {"endpoint": {"url": endpoint}})
        if self._endpoints:
            return
        # Asked for security groups when a project is deleted: 404, there are none.
        self.add_service("network", f"{self.url}/no-network")
        for kind in ("block-storage", "volumev3"):
            self._endpoints.append(self.add_service(kind, endpoint))

    def add_service(self, kind: str, url: str) -> str:
        """Put a service with one public endpoint into its catalog; the id of that."""
        service = self._create("service", type=kind, name=kind)
        where = {"interface": "public", "region_id": REGION, "url": url}
        return self._create("endpoint", service_id=service, **where)

    def close(self) -> None:
        """Stop it."""
        self._session.close()
        self._server.end()

    def _log_in(self) -> None:
        domain = {"id": "default"}
        user = {"name": "admin", "domain": domain, "password": PASSWORD}
        auth = {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": PROJECT_NAME, "domain": domain}},
        }
        answer = self._call("POST", "/auth/tokens", {"auth": auth})
        self.token = answer.headers["X-Subject-Token"]
        self.project = answer.json()["token"]["project"]["id"]
        self._session.headers["X-Auth-Token"] = self.token

    def _create(self, kind: str, **fields: str) -> str:
        answer = self._call("POST", f"/{kind}s", {kind: fields})
        return str(answer.json()[kind]["id"])

    def _grant(self, project: str, user: str, role: str) -> None:
        found = self._call("GET", f"/roles?name={role}").json()["roles"][0]["id"]
        self._call("PUT", f"/projects/{project}/users/{user}/roles/{found}")

    def _call(self, method: str, path: str, body: Any = None) -> requests.Response:
        answer = self._session.request(method, self.url + path, json=body, timeout=300)
        assert answer.ok, answer.text
        return answer


def _configure(directory: Path) -> Path:
    path = directory / "keystone.conf"
    path.write_text(_CONFIG.format(directory=directory))
    return path


def prepared(venv: Path) -> Path:
    """A database after its migrations and the bootstrap, and keys; made once."""
    owner = f"--keystone-user={getpass.getuser()}"
    group = f"--keystone-group={grp.getgrgid(os.getgid()).gr_name}"
    commands = (
        ("db_sync",),
        ("fernet_setup", owner, group),
        ("credential_setup", owner, group),
        ("bootstrap", f"--bootstrap-password={PASSWORD}"),
    )

    def build(out: Path) -> None:
        with step("create the database of Keystone (once)"):
            words = [venv / "bin/python", "-W", "ignore", "-c", _MANAGE]
            words += [f"--config-file={_configure(out)}", json.dumps(commands)]
            sh(words, env=pins.environ())

    inputs = [*pins.PACKAGES, _CONFIG, *(word for words in commands for word in words)]
    return cache.entry("keystone-database", inputs, build)
