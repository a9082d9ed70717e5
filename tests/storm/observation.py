# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read the rows of the API and the storage, when nothing is in progress."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from storm_storage.storage_client import StorageClient
from tests.storm.api import Api
from tests.storm.marks import WIDTH
from tests.storm.world import BACKENDS, GOING

Rows = dict[str, dict[str, Any]]
#: Size in bytes, whether it is complete, and what each block begins with.
Disk = tuple[int, bool, dict[int, bytes]]


@dataclass
class Observation:
    """Rows by id, the storage by backend, and what the quotas of projects count."""

    volumes: Rows
    snapshots: Rows
    attachments: Rows
    types: Rows
    storage: dict[str, dict[str, Any]]
    ready: dict[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def going(self) -> dict[str, str]:
        """The objects with an operation in progress, and their status."""
        rows = [*self.volumes.items(), *self.snapshots.items()]
        rows += self.attachments.items()
        return {
            ident: row["status"]
            for ident, row in rows
            if "fence" in row or (row["status"] in GOING and not opened(row))
        }

    @property
    def broken(self) -> dict[str, str]:
        """The objects that need an operator, or the next reconcile."""
        rows = [*self.volumes.items(), *self.snapshots.items()]
        rows += self.attachments.items()
        failed = {k: row["status"] for k, row in rows if "error" in row["status"]}
        return dict.fromkeys(self.migrated, "migrated, with its old disk") | failed

    @property
    def migrated(self) -> list[str]:
        """The volumes whose migration has ended, and whose other disk still exists.

        It is deleted after the answer. If that fails, the next reconcile repeats it.
        """
        return [
            ident
            for ident, row in self.volumes.items()
            if row["migration_status"] in ("success", "error")
            and len(self.disks(ident)) > 1
        ]

    def backend(self, volume_id: str) -> str:
        """The backend in the volume's row; empty if no pool could hold it."""
        host: str = self.volumes[volume_id]["os-vol-host-attr:host"] or ""
        return host.partition("@")[2].partition("#")[0]

    def disks(self, volume_id: str) -> dict[str, Disk]:
        """The volume's disks by backend."""
        return {
            name: held["disks"][volume_id]
            for name, held in self.storage.items()
            if volume_id in held["disks"]
        }

    def of_volume(self, volume_id: str) -> Rows:
        """The attachments of a volume."""
        return {
            k: row
            for k, row in self.attachments.items()
            if row["volume_id"] == volume_id
        }


def opened(row: dict[str, Any]) -> bool:
    """Whether its access is open, and only the host's confirmation is missing.

    A volume is attaching as long as one of its attachments is.
    """
    if "connection_info" in row:
        return row["status"] == "attaching" and bool(row["connection_info"])
    return row["status"] == "attaching" and "os-vol-host-attr:host" in row


def observe(
    api: Api, storage_client: StorageClient, projects: Iterable[str]
) -> Observation | None:
    """Read everything; None if the daemon does not answer."""
    found = []
    for path, key in (
        ("volumes/detail", "volumes"),
        ("snapshots/detail", "snapshots"),
        ("attachments/detail", "attachments"),
        ("types", "volume_types"),
    ):
        answer = api.ask(None, "GET", f"/v3/{path}?all_tenants=1")
        if answer.status != 200:
            return None
        found.append({row["id"]: row for row in answer.body[key]})
    storage = {
        name: storage_client.call("machine", None, "state", name, WIDTH)
        for name in BACKENDS
    }
    ready = api.ask(None, "GET", "/readyz")
    limits = {}
    for project in projects:
        answer = api.ask(None, "GET", f"/v3/limits?project_id={project}")
        if answer.status != 200:
            return None
        limits[project] = answer.body["limits"]["absolute"]
    volumes, snapshots, attachments, types = found
    return Observation(
        volumes, snapshots, attachments, types, storage, ready.body or {}, limits=limits
    )
