# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder 29.0.0 in a quick guest, over its volume group and its LIO.

cinder-api, cinder-scheduler and cinder-volume run as root, with MariaDB and RabbitMQ
(``lab_run``). A backend has Cinder's own LVM driver with lioadm, or lunshare's driver
with the installed helper. Root needs no sudo: the program of that name only runs its
words, so Cinder's own figures are without the time of sudo.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.bench.http import Client
from tests.stands.cinder import Cinder

CINDER, CONFIGURATION = Path("/opt/cinder"), Path("/etc/cinder")
GLANCE = Path("/opt/glance")
GROUP = "lunshare"
DRIVER = "volume_driver = lunshare.cinder.LunshareDriver\n"
#: A backend of each driver on that volume group.
PEER = (
    "volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver\n"
    f"target_helper = lioadm\ntarget_protocol = iscsi\nvolume_group = {GROUP}\n"
    "lvm_type = thin\n"
)
OURS = f"{DRIVER}volume_group = {GROUP}\n"

_PROGRAMS = {
    "cinder-rtstool": "cinder.cmd.rtstool:main",
    "cinder-rootwrap": "oslo_rootwrap.cmd:main",
    "privsep-helper": "oslo_privsep.daemon:helper_main",
}
_INSTALLED = Path("/opt/lunshare/lib/python3.11/site-packages")
_BIN = Path("/usr/local/bin")


class Node(Cinder):
    """The processes, with ``backends``: the lines of each section by its name.

    ``more``: further lines of [DEFAULT].
    """

    api_threads = 4

    def __init__(
        self, directory: Path, backends: dict[str, str], more: str = ""
    ) -> None:
        super().__init__(directory)
        self.backends, self._more = backends, more

    def python(self) -> Path:
        """The Python of the guest's Cinder."""
        return CINDER / "bin/python"

    def paste(self) -> Path:
        """The guest's file."""
        return CONFIGURATION / "api-paste.ini"

    def prepare(self) -> None:
        """Install the programs of root, and put lunshare beside Cinder."""
        _install_programs()
        self._link_lunshare()

    def volume_environ(self) -> Mapping[str, str]:
        """With lunshare's driver."""
        return {"PYTHONPATH": str(self.directory / "site")}

    def configure(self) -> None:
        """Write cinder.conf with the present backends."""
        sections = "".join(
            f"[{name}]\nvolume_backend_name = {name}\n{lines}"
            for name, lines in self.backends.items()
        )
        # The stats of a backend start processes; none does while they are counted.
        # With 100 exports, Cinder's LVM driver needs more than the default.
        options = (
            "host = node\nauth_strategy = noauth\n"
            f"rootwrap_config = {CONFIGURATION}/rootwrap.conf\n"
            f"enabled_backends = {','.join(self.backends)}\n"
            "backend_stats_polling_interval = 3600\nservice_down_time = 300\n"
            f"rpc_response_timeout = 900\n{self._more}"
        )
        self.config.write_text(self.configuration(options, sections))

    def is_ready(self) -> bool:
        """Whether the scheduler knows a pool of each backend."""
        return self.has_pools()

    def has_pools(self) -> bool:
        """Whether the scheduler knows a pool of each backend."""
        client = Client(self.port)
        try:
            listed = client("GET", "/scheduler-stats/get_pools")["pools"]
        except (OSError, RuntimeError, HTTPException):
            return False
        finally:
            client.close()
        named = {each["name"].partition("@")[2].partition("#")[0] for each in listed}
        return set(self.backends) <= named

    def _link_lunshare(self) -> None:
        """Put lunshare, and nothing else of its environment, beside Cinder."""
        site = self.directory / "site"
        site.mkdir()
        for found in _INSTALLED.glob("lunshare*"):
            (site / found.name).symlink_to(found)


def _install_programs() -> None:
    """Put the programs that Cinder runs as root into the path, as pip does."""
    for name, entry in _PROGRAMS.items():
        module, _, function = entry.partition(":")
        lines = (
            f"#!{CINDER}/bin/python -Wignore",
            "import sys",
            f"from {module} import {function}",
            f"sys.exit({function}())",
        )
        _write_program(name, lines)
    _write_program("sudo", ("#!/bin/sh", 'exec "$@"'))


def _write_program(name: str, lines: Sequence[str]) -> None:
    program = _BIN / name
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)


def stop_lunshared() -> None:
    """End the guest's own daemon: a group has one of the two. The helper stays."""
    subprocess.run(["systemctl", "stop", "lunshared.service"], check=True)


def answer(client: Client, method: str, path: str, body: Any = None) -> Any:
    """Ask cinder-api; the one object of the answer."""
    found = client(method, path, body)
    return next(iter(found.values())) if found else None
