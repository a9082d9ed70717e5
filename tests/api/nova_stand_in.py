# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The one request of Nova's API that the gate sends, over HTTP.

GET /servers/{server}/os-volume_attachments/{volume}, as Nova answers it from
microversion 2.89 on.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Nova:
    """Which server has which volume, by which attachment.

    ``asked`` has server and volume of each request; ``status`` is another answer to
    all of them; while ``hangs`` is set, there is none.
    """

    def __init__(self) -> None:
        self.has: dict[tuple[str, str], str | None] = {}
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.hangs = False
        self.continues = threading.Event()
        handler = type("Handler", (_Handler,), {"nova": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def options(self) -> str:
        """The section of lunshare.conf."""
        return (
            f"[nova]\nauth_type = none\ntimeout = 1\n"
            f"endpoint_override = http://127.0.0.1:{self._port}/v2.1\n"
        )

    def stop(self) -> None:
        """Refuse connections."""
        self.continues.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    nova: Nova

    def do_GET(self) -> None:
        _, version, servers, server, what, volume = self.path.split("/")
        assert (version, servers, what) == ("v2.1", "servers", "os-volume_attachments")
        asked = self.headers["OpenStack-API-Version"]
        self.nova.asked.append((server, volume))
        if self.nova.hangs:
            self.nova.continues.wait(30)
        if self.nova.status != 200:
            return self._answer(self.nova.status, {"computeFault": {"code": 500}})
        if asked != "compute 2.89":
            return self._answer(406, {"computeFault": {"code": 406, "message": asked}})
        if (server, volume) not in self.nova.has:
            return self._answer(404, {"itemNotFound": {"code": 404, "message": "no"}})
        shown = {
            "serverId": server,
            "volumeId": volume,
            "device": "/dev/vdb",
            "tag": None,
            "delete_on_termination": False,
            "attachment_id": self.nova.has[server, volume],
            "bdm_uuid": "c088db45-92b8-49e8-81e2-a1b77a144b3b",
        }
        return self._answer(200, {"volumeAttachment": shown})

    def _answer(self, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""
