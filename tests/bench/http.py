# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A minimal client with one open connection, so that the node is what is timed."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

# Cinder wants a token, also without authentication: user and project.
HEADERS = {"OpenStack-API-Version": "volume 3.71", "X-Auth-Token": "admin:default"}
_JSON = {"Content-Type": "application/json"}
_YES = "<is> True"


def use_token(token: str) -> None:
    """Send this token with every later request, also with those of wrk."""
    HEADERS["X-Auth-Token"] = token


class Client:
    """One connection to a node's API."""

    def __init__(self, port: int, keep: bool = True) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {**_JSON, **HEADERS}
        if not keep:
            self._headers["Connection"] = "close"

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON; an error status raises."""
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, f"/v3{path}", sent, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def fresh(self) -> None:
        """Connect again: the node closes a connection that is idle for 10 seconds."""
        self._connection.close()
        self("GET", "/types")

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._connection.close()

    def fetch(self, path: str) -> bytes:
        """GET without parsing the answer."""
        self._connection.request("GET", f"/v3{path}", headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {text[:300]!r}")
        return text

    def shared_volume(self) -> str:
        """Create a thin volume of 1 GiB that may be shared; returns its id."""
        if "bench" not in [t["name"] for t in self("GET", "/types")["volume_types"]]:
            specs = {"multiattach": _YES, "thin_provisioning_support": _YES}
            new = {"name": "bench", "extra_specs": specs}
            self("POST", "/types", {"volume_type": new})
        asked = {"size": 1, "volume_type": "bench"}
        created = self("POST", "/volumes", {"volume": asked})["volume"]
        until = time.monotonic() + 60
        while created["status"] == "creating" and time.monotonic() < until:
            time.sleep(0.2)
            created = self("GET", f"/volumes/{created['id']}")["volume"]
        if created["status"] != "available":
            raise RuntimeError(f"volume {created['id']} is {created['status']}")
        return str(created["id"])

    def attach(self, volume_id: str, host: str, mode: str = "ro") -> str:
        """Attach with a connector; returns the attachment's id."""
        connector = {"initiator": f"iqn.1994-05.com.example:{host}", "host": host}
        asked = {"volume_uuid": volume_id, "mode": mode, "connector": connector}
        created = self("POST", "/attachments", {"attachment": asked})
        return str(created["attachment"]["id"])

    def complete(self, attachment_id: str) -> None:
        """os-complete."""
        self("POST", f"/attachments/{attachment_id}/action", {"os-complete": None})

    def detach(self, attachment_id: str) -> None:
        """Close it."""
        self("DELETE", f"/attachments/{attachment_id}")

    def cycle(self, volume_id: str, host: str) -> tuple[float, float, float]:
        """Attach, complete and detach; the seconds of each."""
        moments = [time.perf_counter()]
        attachment_id = self.attach(volume_id, host)
        moments.append(time.perf_counter())
        self.complete(attachment_id)
        moments.append(time.perf_counter())
        self.detach(attachment_id)
        moments.append(time.perf_counter())
        one, two, three, four = moments
        return two - one, three - two, four - three
