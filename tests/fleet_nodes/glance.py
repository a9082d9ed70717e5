# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Glance 33.0.0, of the same release as Cinder 29.0.0, with its images in files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import requests

from tests.lab.steps import sh
from tests.stands import installed
from tests.stands.keystone import Keystone
from tests.stands.servers import Server, free_port
from tests.stands.waiting import until
from tests.tempest.pins import environ

PACKAGES = ("glance==33.0.0", "cheroot>=10.0.1", "psycopg2-binary>=2.9.10")
#: The bytes of the image that tests create volumes from.
IMAGE_BYTES = 16 << 20
#: The zeros at its end, which a copy may leave out.
_HOLE = bytes(4 << 20)
#: Without Keystone a request has no role.
_RULES = (
    *("add_image", "get_image", "get_images", "modify_image", "delete_image"),
    *("publicize_image", "upload_image", "download_image"),
)
_MANAGE = "from glance.cmd.manage import main; main()"
# glanceclient sends chunks, which Glance cannot read behind the router of uWSGI.
_SERVE = """
import sys
from cheroot.wsgi import Server
from glance.wsgi.api import application
address, port = sys.argv[1:]
sys.argv[1:] = []
Server((address, int(port)), application, timeout=600).safe_start()
"""
_CONFIG = """
[DEFAULT]
use_stderr = true
enabled_backends = disk:file
[database]
connection = {database}
[glance_store]
default_backend = disk
[disk]
filesystem_store_datadir = {directory}/images
[os_glance_staging_store]
filesystem_store_datadir = {directory}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {directory}/tasks
[oslo_concurrency]
lock_path = {directory}/lock
[oslo_policy]
policy_file = {directory}/policy.yaml
[paste_deploy]
flavor = {flavor}
config_file = {paste}
{keystone}
"""


def venv() -> Path:
    """The venv with it; installed once."""
    return installed.venv("glance-here", PACKAGES)


class Glance:
    """glance-api: cinder-volume reads and writes images."""

    def __init__(self, directory: Path, installed_at: Path, address: str) -> None:
        """``installed_at``: its venv. It listens on ``address``."""
        directory.mkdir()
        self._directory, self._venv = directory, installed_at
        self._python, self._address = installed_at / "bin/python", address
        self.url = f"http://{address}:{free_port()}"
        self._server = Server("glance", directory)

    def start(self, database: str, keystone: Keystone | None) -> None:
        """Create its tables in this database, and wait until it answers.

        Without Keystone everybody is its administrator.
        """
        config = self._directory / "glance-api.conf"
        rules = {} if keystone else dict.fromkeys(_RULES, "@")
        self._directory.joinpath("policy.yaml").write_text(json.dumps(rules))
        config.write_text(
            _CONFIG.format(
                database=database,
                directory=self._directory,
                paste=self._venv / "etc/glance/glance-api-paste.ini",
                flavor="keystone" if keystone else "",
                keystone=keystone.options if keystone else "",
            )
        )
        words = [str(self._python), "-W", "ignore", "-c"]
        sh([*words, _MANAGE, "--config-file", config, "db_sync"], env=environ())
        words += [_SERVE, self._address, self.url.rpartition(":")[2]]
        self._server.run(words, OS_GLANCE_CONFIG_DIR=str(self._directory))
        until(self._answers, f"Glance answers; see {self._server.log}", 120)

    def close(self) -> None:
        """Stop it."""
        self._server.end()

    def image(self, token: str) -> str:
        """Upload a public image of random bytes and zeros; its id."""
        fields = {"name": "random", "disk_format": "raw", "container_format": "bare"}
        made = self._call("POST", "", token, json={**fields, "visibility": "public"})
        name = str(made.json()["id"])
        kind = {"Content-Type": "application/octet-stream"}
        data = os.urandom(IMAGE_BYTES - len(_HOLE)) + _HOLE
        self._call("PUT", f"/{name}/file", token, data=data, headers=kind)
        return name

    def data(self, image: str, token: str) -> bytes:
        """The bytes of an image."""
        return self._call("GET", f"/{image}/file", token).content

    def status(self, image: str, token: str) -> str:
        """The status of an image."""
        return str(self._call("GET", f"/{image}", token).json()["status"])

    def delete(self, image: str, token: str) -> None:
        """Delete an image."""
        self._call("DELETE", f"/{image}", token)

    def _call(
        self, method: str, path: str, token: str, **more: Any
    ) -> requests.Response:
        headers = {"X-Auth-Token": token, **more.pop("headers", {})}
        answer = requests.request(
            method, f"{self.url}/v2/images{path}", headers=headers, timeout=300, **more
        )
        assert answer.ok, answer.text
        return answer

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/versions", timeout=5).status_code < 500
        except requests.ConnectionError:
            return False
