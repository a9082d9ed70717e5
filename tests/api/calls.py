# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the API for tests: it checks the status and returns the body."""

from __future__ import annotations

import json
import uuid
from typing import Any

from falcon import testing

from lunshare.agent.api.routes import ROUTES, Route
from tests.api import documented
from tests.stands.waiting import until

LATEST = "3.71"
BINARY = "cinder-volume"


def require_documented(method: str, path: str, version: str, answer: Any) -> None:
    """Fail if the OpenAPI document does not allow an answer."""
    route = documented_route(method, path)
    if route is not None:
        documented.require(route, version, answer)


def documented_route(method: str, path: str) -> Route | None:
    """The route that a path below the project belongs to."""
    parts = f"/v3{path}".partition("?")[0].rstrip("/").split("/")
    for route in ROUTES:
        if route.method == method and len(wanted := route.path.split("/")) == len(
            parts
        ):
            pairs = zip(wanted, parts, strict=True)
            if all(one.startswith("{") or one == other for one, other in pairs):
                return route
    return None


class Api:
    """One project's calls to the real application, at one microversion."""

    def __init__(self, app: Any, version: str = LATEST) -> None:
        self.client = testing.TestClient(app)
        self.project = f"p{uuid.uuid4().hex}"
        self.version = version

    def at(self, version: str) -> Api:
        """The same project at another microversion."""
        other = Api(self.client.app, version)
        other.project = self.project
        return other

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send and return the complete answer; ``path`` is below the project."""
        headers = {
            "X-Auth-Token": f"user:{self.project}",
            "OpenStack-API-Version": f"volume {self.version}",
            "Content-Type": "application/json",
            **more.pop("headers", {}),
        }
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.simulate_request(
            method,
            f"/v3/{self.project}{path}",
            headers={key: value for key, value in headers.items() if value},
            body=None if body is None else raw,
            **more,
        )
        require_documented(method, path, self.version, answer)
        return answer

    def __call__(
        self, method: str, path: str, body: Any = None, status: int = 200, **more: Any
    ) -> Any:
        """Send, check the status, return the body."""
        answer = self.send(method, path, body, **more)
        assert answer.status_code == status, answer.text
        return answer.json if answer.content else None

    def fault(
        self, status: int, method: str, path: str, body: Any = None, **more: Any
    ) -> str:
        """Send what must fail with ``status``, and return the sentence."""
        answer = self(method, path, body, status, **more)
        assert list(answer) == [KEYS.get(status, "computeFault")], answer
        (fault,) = answer.values()
        assert fault["code"] == status
        message = fault["message"]
        assert isinstance(message, str)
        assert 0 < len(message) <= 400, message
        return message

    def volume(self, **fields: Any) -> dict[str, Any]:
        """A new volume of 1 GiB."""
        asked = {"volume": {"size": 1, **fields}}
        made: dict[str, Any] = self("POST", "/volumes", asked, 202)["volume"]
        return made

    def type(self, **specs: str) -> dict[str, Any]:
        """A new type with these extra specs."""
        asked = {"volume_type": {"name": uuid.uuid4().hex, "extra_specs": specs}}
        made: dict[str, Any] = self("POST", "/types", asked)["volume_type"]
        return made

    def shared_volume(self, **fields: Any) -> dict[str, Any]:
        """A new volume that any number of hosts may have."""
        kind = self.type(multiattach="<is> True")
        return self.volume(volume_type=kind["id"], **fields)

    def snapshot(self, volume_id: str, **fields: Any) -> dict[str, Any]:
        """A new snapshot."""
        asked = {"snapshot": {"volume_id": volume_id, **fields}}
        made: dict[str, Any] = self("POST", "/snapshots", asked, 202)["snapshot"]
        return made

    def shown(self, volume_id: str) -> dict[str, Any]:
        """The volume as it is now."""
        found: dict[str, Any] = self("GET", f"/volumes/{volume_id}")["volume"]
        return found

    def service(self, host: str) -> dict[str, Any]:
        """The volume service of that host."""
        path = f"/os-services?host={host}&binary={BINARY}"
        (service,) = self("GET", path)["services"]
        return dict(service)

    def gone(self, path: str) -> None:
        """Wait until it is deleted. A delete is answered before that."""
        until(lambda: self.send("GET", path).status_code == 404)

    def act(self, volume_id: str, action: dict[str, Any], **more: Any) -> Any:
        """An action on a volume that is accepted; the complete answer."""
        answer = self.send("POST", f"/volumes/{volume_id}/action", action, **more)
        assert answer.status_code == 202, answer.text
        assert answer.content == b""
        return answer

    def refused(self, status: int, volume_id: str, action: dict[str, Any]) -> str:
        """An action on a volume that is not; the sentence."""
        return self.fault(status, "POST", f"/volumes/{volume_id}/action", action)

    def attachment(self, volume_id: str, **fields: Any) -> dict[str, Any]:
        """A new attachment."""
        asked = {"attachment": {"volume_uuid": volume_id, **fields}}
        made: dict[str, Any] = self("POST", "/attachments", asked)["attachment"]
        return made

    def complete(self, attachment_id: str) -> None:
        """The host confirms that it uses the volume."""
        path = f"/attachments/{attachment_id}/action"
        self("POST", path, {"os-complete": None}, 204)


KEYS = {
    400: "badRequest",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    503: "serviceUnavailable",
}
