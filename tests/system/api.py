# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node's API as its clients see it: a status and JSON."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from tests.stands.waiting import until
from tests.system.hosts import Host

ADDRESS = "127.0.0.1:8776"
SHARED_TYPE = "multiattach"
_HEADERS = {
    "Content-Type": "application/json",
    "OpenStack-API-Version": "volume latest",
}
_SECONDS = 60

Answer = tuple[int, dict[str, Any]]


class Api:
    """One node's API at HOST:PORT or unix:PATH."""

    def __init__(self, address: str = ADDRESS) -> None:
        self._address = address

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """One request on a separate connection."""
        answer, content = self._send(method, path, body)
        return answer.status, json.loads(content or b"{}")

    def act(self, volume: str, action: dict[str, object]) -> dict[str, str]:
        """An action on a volume that must be accepted; returns the answer's headers."""
        answer, content = self._send("POST", f"/v3/volumes/{volume}/action", action)
        assert answer.status == 202, content
        return {name.title(): value for name, value in answer.getheaders()}

    def must(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """A request that must succeed; returns the answer's body."""
        status, answer = self.call(method, path, body)
        assert status < 300, (method, path, status, answer)
        return answer

    def answers(self) -> bool:
        """Whether the API accepts connections."""
        try:
            return self.call("GET", "/healthz")[0] == 200
        except OSError:
            return False

    # volumes

    def volume(self, shared: bool = True, **more: object) -> str:
        """The id of a new volume of 1 GiB, ready for hosts."""
        fields: dict[str, object] = {"size": 1, "name": "system test", **more}
        if shared and "volume_type" not in fields:
            fields["volume_type"] = self.shared_type()
        created = self.must("POST", "/v3/volumes", {"volume": fields})["volume"]
        until(lambda: self.status(created["id"]) != "creating")
        assert self.status(created["id"]) == "available"
        return str(created["id"])

    def shared_type(self, backend: str | None = None) -> str:
        """The type whose volumes may be shared; created on a new node.

        ``backend``: the type of that backend only.
        """
        name, specs = SHARED_TYPE, {"multiattach": "<is> True"}
        if backend:
            name, specs = f"{name}-{backend}", specs | {"volume_backend_name": backend}
        named = {"name": name, "extra_specs": specs}
        status, answer = self.call("POST", "/v3/types", {"volume_type": named})
        assert status in (200, 409), answer
        return name

    def cluster_type(self) -> str:
        """The type whose volumes may be shared and reserved; created on a new node."""
        specs = {"multiattach": "<is> True", "lunshare:reservations": "<is> True"}
        named = {"name": "cluster", "extra_specs": specs}
        status, answer = self.call("POST", "/v3/types", {"volume_type": named})
        assert status in (200, 409), answer
        return "cluster"

    def status(self, volume: str) -> str:
        """The status of a volume."""
        return str(self.shown(volume)["status"])

    def shown(self, volume: str) -> dict[str, Any]:
        """The volume as GET returns it."""
        return dict(self.must("GET", f"/v3/volumes/{volume}")["volume"])

    def delete_volume(self, volume: str) -> None:
        """Delete it and wait until it is gone."""
        self.must("DELETE", f"/v3/volumes/{volume}")
        path = f"/v3/volumes/{volume}"
        until(lambda: self.call("GET", path)[0] == 404)

    # snapshots

    def snapshot(self, volume: str) -> str:
        """The id of a new, complete snapshot."""
        fields = {"snapshot": {"volume_id": volume}}
        created = self.must("POST", "/v3/snapshots", fields)["snapshot"]
        path = f"/v3/snapshots/{created['id']}"

        def status() -> str:
            return str(self.must("GET", path)["snapshot"]["status"])

        until(lambda: status() != "creating")
        assert status() == "available"
        return str(created["id"])

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete it and wait until it is gone."""
        path = f"/v3/snapshots/{snapshot}"
        self.must("DELETE", path)
        until(lambda: self.call("GET", path)[0] == 404)

    # attachments

    def create(
        self, volume: str, host: Host | None = None, mode: str | None = None
    ) -> Answer:
        """POST /attachments: reserve; with a host, open the volume to it."""
        fields: dict[str, object] = {"volume_uuid": volume}
        if host is not None:
            fields["connector"] = host.connector
        if mode is not None:
            fields["mode"] = mode
        return self.call("POST", "/v3/attachments", {"attachment": fields})

    def reserve(self, volume: str, mode: str | None = None) -> str:
        """The id of an attachment without a host."""
        status, answer = self.create(volume, None, mode)
        assert status == 200, answer
        return str(answer["attachment"]["id"])

    def attach(
        self, volume: str, host: Host, mode: str | None = None
    ) -> dict[str, Any]:
        """Attach a host; returns the attachment."""
        status, answer = self.create(volume, host, mode)
        assert status == 200, answer
        return dict(answer["attachment"])

    def connect(self, attachment: str, host: Host) -> Answer:
        """PUT /attachments/{id}."""
        fields = {"attachment": {"connector": host.connector}}
        return self.call("PUT", f"/v3/attachments/{attachment}", fields)

    def complete(self, attachment: str) -> None:
        """os-complete: the host uses the volume."""
        action = {"os-complete": None}
        self.must("POST", f"/v3/attachments/{attachment}/action", action)

    def detach(self, attachment: str, force: bool = False) -> Answer:
        """DELETE /attachments/{id}. ``force``: a host with a reservation key too."""
        query = "?force=true" if force else ""
        return self.call("DELETE", f"/v3/attachments/{attachment}{query}")

    def attachments(self, volume: str) -> list[dict[str, Any]]:
        """The attachments of one volume, with all fields."""
        path = f"/v3/attachments/detail?all_tenants=1&volume_id={volume}"
        return list(self.must("GET", path)["attachments"])

    def unknown(self) -> list[str]:
        """The orphans that the last reconcile found."""
        return list(self.must("GET", "/v3/lunshare/health")["health"]["unknown"])

    def _send(
        self, method: str, path: str, body: object
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, _HEADERS)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.startswith("unix:"):
            return _UnixConnection(self._address.removeprefix("unix:"))
        return http.client.HTTPConnection(self._address, timeout=_SECONDS)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
