# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The part of Keystone's HTTP that keystonemiddleware uses, with tokens by name.

`make tempest` has a real Keystone; here a test decides when it is down, hangs, or
answers that a token has expired.
"""

from __future__ import annotations

import datetime
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWN = "token-of-the-daemon"


class Keystone:
    """Tokens by their text; ``asked`` counts validations of each."""

    def __init__(self, port: int = 0) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.asked: dict[str, int] = {}
        self._server: ThreadingHTTPServer | None = None
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v3"

    def start(self) -> None:
        """Listen, on the same port as before."""
        handler = type("Handler", (_Handler,), {"keystone": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def issue(
        self,
        token: str,
        *roles: str,
        project: str | None = "one",
        seconds: float = 3600,
        system: bool = False,
    ) -> str:
        """A token of a user with these roles; it expires after ``seconds``."""
        now = datetime.datetime.now(datetime.UTC)
        body: dict[str, Any] = {
            "methods": ["password"],
            "user": {"id": f"user of {token}", "name": token, "domain": _DOMAIN},
            "roles": [{"id": role, "name": role} for role in roles],
            "issued_at": _time(now),
            "expires_at": _time(now + datetime.timedelta(seconds=seconds)),
            "audit_ids": ["a"],
        }
        if system:
            body["system"] = {"all": True}
        elif project is not None:
            body["project"] = {"id": project, "name": project, "domain": _DOMAIN}
        self.tokens[token] = {"token": body}
        return token

    @property
    def options(self) -> str:
        """The section of lunshare.conf."""
        return f"""
[keystone_authtoken]
auth_url = {self.url}
www_authenticate_uri = {self.url}
auth_type = password
username = lunshare
password = secret
user_domain_id = default
project_name = service
project_domain_id = default
http_connect_timeout = 2
"""


_DOMAIN = {"id": "default", "name": "Default"}


def _time(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Handler(BaseHTTPRequestHandler):
    """A connection for each request, so that none is left when it is stopped."""

    keystone: Keystone

    def do_GET(self) -> None:
        if not self.path.startswith("/v3/auth/tokens"):
            link = {"rel": "self", "href": f"{self.keystone.url}/"}
            version = {"id": "v3.14", "status": "stable", "links": [link]}
            return self._answer(200, {"version": version})
        token = self.headers["X-Subject-Token"]
        self.keystone.asked[token] = self.keystone.asked.get(token, 0) + 1
        if self.headers["X-Auth-Token"] != OWN:
            return self._answer(401, {"error": {"code": 401, "message": "no"}})
        if token not in self.keystone.tokens:
            return self._answer(404, {"error": {"code": 404, "message": "no"}})
        found = self.keystone.tokens[token]
        return self._answer(200, found, {"X-Subject-Token": token})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        own = Keystone.issue(self.keystone, OWN, "service")
        body = self.keystone.tokens[own]
        endpoint = {"interface": "public", "region": "r", "region_id": "r", "id": "e"}
        endpoint["url"] = self.keystone.url
        identity = {"type": "identity", "name": "keystone", "id": "k"}
        body["token"]["catalog"] = [
            {**identity, "endpoints": [endpoint, {**endpoint, "interface": "internal"}]}
        ]
        self._answer(201, body, {"X-Subject-Token": own})

    def _answer(
        self, status: int, body: Any, headers: dict[str, str] | None = None
    ) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""
