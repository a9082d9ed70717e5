# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes through cinder-api, and cinder-volume as cinder-api itself calls it.

It runs in Cinder's own Python: its RPC client and its database are used as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql
from cinder import context, objects, rpc
from cinder.common import config
from cinder.db import api as _api  # noqa: F401 - registers options of the database
from cinder.volume import rpcapi

from tests.bench.figures import timed
from tests.bench.http import Client
from tests.cinder_guest.node import Node
from tests.cinder_guest.process_accounting import ended_processes
from tests.stands.waiting import until

_SECONDS = 180.0


@dataclass(frozen=True)
class Within:
    """Seconds of an attach and of its detach, from the call to the answer.

    The message bus and the database are included. ``started`` counts the processes that
    ended during the attach: all that it has started.
    """

    opened: float
    closed: float
    started: int


def initiator(host: str) -> str:
    """The iSCSI name of a host."""
    return f"iqn.1994-05.com.example:{host}"


def connector(host: str) -> dict[str, Any]:
    """What os-brick sends on a host."""
    return {"initiator": initiator(host), "host": host, "ip": "127.0.0.1"}


class Calls:
    """Requests of one client, each waiting for its end."""

    def __init__(self, node: Node) -> None:
        config.CONF(["--config-file", str(node.config)], project="cinder")
        objects.register_all()
        rpc.init(config.CONF)
        self._volumes, self._admin = rpcapi.VolumeAPI(), context.get_admin_context()
        self.api, self._directory = Client(node.port), node.directory
        where = node.database.url.partition("unix_socket=")[2]
        self._rows = pymysql.connect(
            unix_socket=where, user="root", database="cinder", autocommit=True
        )

    def make_type(self, backend: str, **more: str) -> None:
        """Create the volume type of a backend."""
        specs = {"volume_backend_name": backend, **more}
        body = {"volume_type": {"name": backend, "extra_specs": specs}}
        self.api("POST", "/types", body)

    def create(self, backend: str, **more: Any) -> str:
        """Create a volume of 1 GiB; return its id when it is available."""
        body = {"size": 1, "volume_type": backend, **more}
        return self._wait_for("volumes", "volume", body)

    def snapshot(self, volume_id: str) -> str:
        """Create a snapshot; return its id."""
        body = {"volume_id": volume_id, "force": True}
        return self._wait_for("snapshots", "snapshot", body)

    def delete(self, table: str, found: str) -> None:
        """Delete a volume or a snapshot, and wait until it is gone."""
        self.api("DELETE", f"/{table}/{found}")
        until(lambda: self._status(table, found) == "deleted", found, _SECONDS)

    def reserve(self, volume_id: str, mode: str = "rw") -> str:
        """Create an attachment without a connector, as Nova does; return its id."""
        body = {"attachment": {"volume_uuid": volume_id, "mode": mode}}
        return str(self.api("POST", "/attachments", body)["attachment"]["id"])

    def connect(self, attachment_id: str, host: str) -> dict[str, Any]:
        """Give it a connector, and complete it; return connection_info."""
        body = {"attachment": {"connector": connector(host)}}
        answer = self.api("PUT", f"/attachments/{attachment_id}", body)
        path = f"/attachments/{attachment_id}/action"
        self.api("POST", path, {"os-complete": None})
        return dict(answer["attachment"]["connection_info"])

    def detach(self, attachment_id: str) -> None:
        """Delete an attachment."""
        self.api("DELETE", f"/attachments/{attachment_id}")

    def over_http(self, volume_id: str) -> tuple[float, float]:
        """Seconds of an attach and of its detach, through cinder-api."""
        found = self.reserve(volume_id)
        body = {"attachment": {"connector": connector("bench")}}
        opened = timed(lambda: self.api("PUT", f"/attachments/{found}", body))
        return opened, timed(lambda: self.detach(found))

    def within(self, volume_id: str) -> Within:
        """Attach and detach by the calls of cinder-volume alone."""
        found = self.reserve(volume_id)
        volume = objects.Volume.get_by_id(self._admin, volume_id)
        with ended_processes(self._directory) as started:
            opened = timed(
                lambda: self._volumes.attachment_update(
                    self._admin, volume, connector("bench"), found
                )
            )
        closed = timed(
            lambda: self._volumes.attachment_delete(self._admin, found, volume)
        )
        # What cinder-api does after it: the row is deleted, the volume is available.
        assert volume.volume_attachment
        volume.finish_detach(found)
        return Within(opened, closed, len(started))

    def close(self) -> None:
        """End the connections."""
        self.api.close()
        self._rows.close()

    def _wait_for(self, table: str, name: str, body: dict[str, Any]) -> str:
        found = str(self.api("POST", f"/{table}", {name: body})[name]["id"])
        until(lambda: self._status(table, found) == "available", found, _SECONDS)
        return found

    def _status(self, table: str, found: str) -> str:
        """Ask the database: a request would take time of the one processor."""
        with self._rows.cursor() as rows:
            rows.execute(f"SELECT status FROM {table} WHERE id = %s", (found,))
            status = str(rows.fetchone()[0])
        if status.startswith("error"):
            raise RuntimeError(f"{table} {found}: {status}")
        return status
