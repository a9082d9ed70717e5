# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A stock Cinder 29.0.0 on loopback, whose cinder-volume loads lunshare's driver.

MariaDB, RabbitMQ, cinder-api, cinder-scheduler and cinder-volume, as pip and Debian
have them. The storage is the fake one in a process of its own (``tests/storm``), so
disks, exports and sessions of hosts survive a kill of cinder-volume, as in a kernel.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB, Auth, Connector, Export, Mode, Snapshot, Volume
from storm_storage.storage_client import StorageClient
from tests.bench.http import Client
from tests.stands.cinder import Cinder
from tests.stands.servers import ROOT
from tests.storm.processes import ENTRY_POINTS, Storage

THIN, THICK = "thin", "thick"
#: A backend of another driver (``other_backend``).
OTHER = "other"
#: Of the thick backend. The scheduler does not evaluate them here: the evaluator of
#: Cinder 29.0.0 refuses every variable with pyparsing 3.3.3, and then every backend.
FUNCTIONS = {
    "filter_function": "volume.size < 13",
    "goodness_function": "capabilities.total_volumes < 100 ? 90 : 10",
}


class Stack(Cinder):
    """The processes, and clients of them."""

    def __init__(self, directory: Path, *database_options: str) -> None:
        super().__init__(directory, *database_options)
        self._asking, self._clients = Client(self.port), list[Client]()

    def __exit__(self, *error: object) -> None:
        for client in (self._asking, *self._clients):
            client.close()
        super().__exit__(*error)

    def client(self) -> Client:
        """A client of cinder-api; it is closed at the end."""
        made = Client(self.port)
        self._clients.append(made)
        return made

    def host(self, backend: str, initiator: str, info: Mapping[str, Any]) -> Host:
        """Log a host in, with what its attachment says; PermissionError if refused."""
        auth = Auth(info["auth_username"], info["auth_password"])
        volume_id = info["target_iqn"].partition("volume-")[2]
        number = self._machine("login", backend, volume_id, initiator, auth)
        return Host(self.storage, number)

    def exports(self, backend: str) -> dict[str, dict[str, tuple[str, str]]]:
        """The live exports: mode and attachment of each initiator, by volume."""
        state = self._machine("state", backend, 8)
        return {key: dict(value) for key, value in state["exports"].items()}

    def disks(self, backend: str) -> set[str]:
        """The ids of the disks."""
        return set(self._machine("state", backend, 8)["disks"])

    def put_foreign(self, backend: str, name: str, size: int) -> None:
        """Put a foreign disk into the pool."""
        self._machine("put_foreign", backend, name, size, {})

    def forget_export(self, backend: str, volume_id: str) -> None:
        """Lose an export, as a kernel does at a reboot."""
        self._driver(FakeTarget, backend, "remove", volume_id)

    def put_snapshot(self, backend: str, snapshot: Snapshot) -> None:
        """Put a snapshot of which Cinder knows nothing into the pool."""
        self._driver(FakeVolumes, backend, "create_snapshot", snapshot)

    def snapshots(self, backend: str) -> set[str]:
        """The ids of the snapshots."""
        return set(self._driver(FakeVolumes, backend, "snapshots"))

    @contextmanager
    def exported(self, backend: str, *volume_ids: str) -> Iterator[None]:
        """Show these exports to a backend, as a kernel shows all that it has.

        The fake target has only exports of disks that exist.
        """
        for each in volume_ids:
            disk = self._driver(FakeVolumes, backend, "create", Volume(each, GIB))
            host = Connector("iqn.1994-05.com.example:other", Mode.RW, each)
            export = Export(each, disk, (host,))
            self._driver(FakeTarget, backend, "apply", export, None)
        yield
        for each in volume_ids:
            self.forget_export(backend, each)
            self._driver(FakeVolumes, backend, "delete", each)

    def _driver(
        self,
        kind: type[FakeTarget] | type[FakeVolumes],
        backend: str,
        verb: str,
        *given: object,
    ) -> Any:
        role = "target" if kind is FakeTarget else "volumes"
        options = {option.dest: option.default for option in kind.OPTIONS}
        key = ("reboot", backend, tuple(sorted(options.items())))
        return self.storage.call(role, key, verb, *given)

    def hang(self, backend: str, point: str, seconds: float = 120.0) -> None:
        """Let a point of the storage hang until ``release``, or so long."""
        self._machine("arm", "hang", backend, point, 1, seconds)

    def hangs(self, backend: str, point: str) -> bool:
        """Whether a call hangs at that point."""
        return (backend, point) in self._machine("hanging")

    def release(self) -> None:
        """End everything that hangs."""
        self._machine("clear")

    def fail(self, backend: str, point: str, times: int = 1) -> None:
        """Let a point of the storage fail so often."""
        self._machine("arm", "fail", backend, point, times, 1.0)

    def configure(self, sections: str = "", *more: str) -> None:
        """Write cinder.conf; ``sections`` are of the backends in ``more``."""
        backends = ",".join((THIN, THICK, OTHER, *more))
        storm = f"storm_socket = {self.storage_socket}\n"
        driver = "volume_driver = lunshare.cinder.LunshareDriver\n"
        drivers = f"{driver}lunshare_storage = storm\nlunshare_target = storm\n{storm}"
        options = (
            f"host = node\nauth_strategy = noauth\nenabled_backends = {backends}\n"
            "reinit_driver_count = 1\n"
            "report_interval = 2\nservice_down_time = 30\n"
            "periodic_interval = 2\nperiodic_fuzzy_delay = 0\n"
            "backend_stats_polling_interval = 3\n"
            f"[{THIN}]\nvolume_backend_name = {THIN}\n{drivers}"
            "fake_clones_at_once = true\n"
            f"[{THICK}]\nvolume_backend_name = {THICK}\n{drivers}"
            f"filter_function = {FUNCTIONS['filter_function']}\n"
            f"goodness_function = {FUNCTIONS['goodness_function']}\n"
            "fake_thin = false\nfake_capacity_gb = 20\nfake_wipe = true\n"
            "wipe_rate = 0\n"
            f"[{OTHER}]\nvolume_backend_name = {OTHER}\n"
            "volume_driver = tests.fleet.other_backend.OtherBackend"
        )
        self.config.write_text(self.configuration(options, sections))

    def volume_environ(self) -> Mapping[str, str]:
        """With lunshare's driver, and that of the storage."""
        return {"PYTHONPATH": python_path(self.directory)}

    def prepare(self) -> None:
        """Start the storage."""
        made = Storage(self.directory, ROOT, seed=1, delay=0)
        self._stack.callback(made.close)
        self.storage_socket = made.socket
        self.storage = StorageClient(made.socket)

    def is_ready(self) -> bool:
        """Whether every backend can be chosen."""
        return self.is_up(THIN, THICK, OTHER)

    def services(self) -> dict[str, str]:
        """State of each cinder-volume by its host."""
        listed = self._asking("GET", "/os-services?binary=cinder-volume")["services"]
        return {each["host"]: each["state"] for each in listed}

    def pools(self) -> dict[str, dict[str, Any]]:
        """The stats that the scheduler has, by the pool's name."""
        listed = self._asking("GET", "/scheduler-stats/get_pools?detail=true")
        return {pool["name"]: pool["capabilities"] for pool in listed["pools"]}

    def is_up(self, *backends: str) -> bool:
        """Whether these backends can be chosen."""
        names = [f"node@{name}#{name}" for name in backends]
        try:
            pools, services = self.pools(), self.services()
        except (OSError, RuntimeError, HTTPException):
            self._asking.close()
            return False
        return all(
            name in pools and services.get(name.partition("#")[0]) == "up"
            for name in names
        )

    def _machine(self, verb: str, *given: object) -> Any:
        return self.storage.call("machine", None, verb, *given)


class Host:
    """One host that is logged in to a volume."""

    def __init__(self, storage: StorageClient, number: int) -> None:
        self._storage, self._number = storage, number

    def write(self, data: bytes) -> None:
        """Write at the start; PermissionError if the target refuses it."""
        self._do("write", 0, data)

    def read(self, length: int) -> bytes:
        """Read from the start."""
        return bytes(self._do("read", 0, length))

    @property
    def size(self) -> int:
        """The size that it sees."""
        return int(self._do("size"))

    def is_alive(self) -> bool:
        """Whether its session goes on."""
        return bool(self._do("alive"))

    def _do(self, verb: str, *given: object) -> Any:
        return self._storage.call(
            "machine", None, "session", self._number, verb, *given
        )


def python_path(directory: Path) -> str:
    """Where Cinder's Python finds lunshare, the drivers, and their entry points."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    points = setup["options.entry_points"]
    ours = "".join(
        f"[{group}]{points[group]}\n"
        for group in ("lunshare.drivers", "lunshare.targets")
    )
    for name, text in (("lunshare", ours), ("storm_storage", ENTRY_POINTS)):
        known = directory / "site" / f"{name}-1.dist-info"
        known.mkdir(parents=True, exist_ok=True)
        (known / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        )
        (known / "entry_points.txt").write_text(text)
    places = (ROOT, ROOT / "tests/storm", directory / "site")
    return os.pathsep.join(map(str, places))
