# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder 29.0.0 in a quick guest, over its volume group and its LIO.

cinder-api, cinder-scheduler and cinder-volume run as root, with MariaDB and RabbitMQ
(``lab_run``). A backend has Cinder's own LVM driver with lioadm, or lunshare's driver
with the installed helper. Root needs no sudo: the program of that name only runs its
words, so Cinder's own figures are without the time of sudo.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.bench.cinder_peer import MariaDB
from tests.bench.http import Client
from tests.lab.steps import sh, step
from tests.stands.servers import Broker, Server, children, free_port
from tests.stands.waiting import until

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
_SCHEDULER = "from cinder.cmd.scheduler import main; main()"
_VOLUME = "from cinder.cmd.volume import main; main()"
_MANAGE = "from cinder.cmd.manage import main; main()"
_UWSGI = "import pyuwsgi; pyuwsgi.run()"
_INSTALLED = Path("/opt/lunshare/lib/python3.11/site-packages")
_BIN = Path("/usr/local/bin")


class Node:
    """The processes, with ``backends``: the lines of each section by its name.

    ``more``: further lines of [DEFAULT].
    """

    def __init__(
        self, directory: Path, backends: dict[str, str], more: str = ""
    ) -> None:
        self._more = more
        self.directory, self.port, self.backends = directory, free_port(), backends
        self.database, self._broker = MariaDB(directory), Broker(directory)
        self.config = directory / "cinder.conf"
        self._servers = {
            name: Server(name, directory)
            for name in ("cinder-scheduler", "cinder-volume", "cinder-api")
        }
        self._stack = ExitStack()

    def __enter__(self) -> Node:
        with self._stack, step("start Cinder"):
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def broker_url(self) -> str:
        """The URL of its message bus."""
        return self._broker.url

    @property
    def log(self) -> str:
        """What cinder-volume has written."""
        return self._servers["cinder-volume"].log.read_text()

    def configure(self) -> None:
        """Write cinder.conf with the present backends."""
        state, names = self.directory, ",".join(self.backends)
        sections = "".join(
            f"[{name}]\nvolume_backend_name = {name}\n{lines}"
            for name, lines in self.backends.items()
        )
        # The stats of a backend start processes; none does while they are counted.
        self.config.write_text(
            f"[DEFAULT]\ntransport_url = {self._broker.url}\nstate_path = {state}\n"
            f"host = node\nmy_ip = 127.0.0.1\nauth_strategy = noauth\n"
            f"api_paste_config = {CONFIGURATION}/api-paste.ini\n"
            f"rootwrap_config = {CONFIGURATION}/rootwrap.conf\n"
            f"enabled_backends = {names}\nquota_volumes = -1\nquota_gigabytes = -1\n"
            "quota_snapshots = -1\nbackend_stats_polling_interval = 3600\n"
            "graceful_shutdown_timeout = 5\nservice_down_time = 300\n"
            # With 100 exports, Cinder's LVM driver needs more than the default.
            f"rpc_response_timeout = 900\n{self._more}"
            f"{sections}[database]\nconnection = {self.database.url}\n"
            f"[oslo_concurrency]\nlock_path = {state}/lock\n"
            f"[coordination]\nbackend_url = file://{state}/coordination\n"
        )

    def start_volume(self) -> None:
        """Start cinder-volume."""
        self._servers["cinder-volume"].run(
            self.command(_VOLUME), PYTHONPATH=str(self.directory / "site")
        )

    def stop_volume(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to every process of cinder-volume, and wait for their end."""
        server = self._servers["cinder-volume"]
        assert server.process is not None
        if number == signal.SIGKILL:
            for child in children(server.process.pid):
                os.kill(child, number)
        server.end(number)

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

    def command(self, program: str) -> list[str]:
        """The words that run a program of Cinder with this cinder.conf."""
        words = [str(CINDER / "bin/python"), "-W", "ignore", "-c", program]
        return [*words, "--config-file", str(self.config)]

    def _start(self) -> None:
        _install_programs()
        self._link_lunshare()
        self._stack.callback(self.database.end)
        self.database.start()
        self._stack.callback(self._broker.close)
        self._broker.start()
        self.configure()
        sh([*self.command(_MANAGE), "db", "sync"])
        for server in self._servers.values():
            self._stack.callback(server.end)
        self._servers["cinder-scheduler"].run(self.command(_SCHEDULER))
        self.start_volume()
        self._servers["cinder-api"].run(self._uwsgi())
        try:
            until(self._is_up, "Cinder answers", 300)
        except AssertionError as error:
            error.add_note(self.log[-3000:])
            raise

    def _is_up(self) -> bool:
        for server in self._servers.values():
            if server.process is None or server.process.poll() is not None:
                raise RuntimeError(f"it ended: {server.log.read_text()[-3000:]}")
        return self.has_pools()

    def _uwsgi(self) -> list[str]:
        return [
            *(str(CINDER / "bin/python"), "-W", "ignore", "-c", _UWSGI),
            *(f"--http=127.0.0.1:{self.port}", "--http-auto-chunked"),
            *("--http-keepalive=600", "--http-timeout=600", "--master"),
            *("--die-on-term", "--lazy-apps", "--enable-threads", "--need-app"),
            *("--disable-logging", "--processes=1", "--threads=4"),
            "--module=cinder.wsgi.api:application",
            f"--pyargv=--config-file {self.config}",
        ]

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
