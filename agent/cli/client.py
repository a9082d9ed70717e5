# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One request to a node, over TCP, TLS or a unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 60
_HEADERS = {
    "Content-Type": "application/json",
    "OpenStack-API-Version": "volume latest",
}


class Refused(Exception):
    """The node answered that it will not, in its own words."""


class Unreachable(Exception):
    """Nobody answers there, or nobody who speaks Block Storage."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._path)


class Node:
    """A node by its endpoint: ``http://HOST:PORT/v3``, https, or ``unix:PATH``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def get(self, path: str) -> Any:
        """What is there.

        :raises Refused: the node's own sentence.
        :raises Unreachable: says where, and why.
        """
        return self._ask("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """What is answered; raises as ``get`` does."""
        return self._ask("POST", path, json.dumps(body))

    def delete(self, path: str) -> None:
        """Delete what is there; raises as ``get`` does."""
        self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        try:
            connection, root = self._connection()
        except ValueError as error:
            raise Unreachable(
                f"endpoint {self.endpoint} is not valid: {error}"
            ) from None
        try:
            connection.request(method, root + path, body, _HEADERS)
            answer = connection.getresponse()
            return _read(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or error
            raise Unreachable(
                f"no node answers at {self.endpoint} ({why}): is lunshared running,"
                " and is that its endpoint?"
            ) from None
        except ValueError:
            raise Unreachable(
                f"what answers at {self.endpoint} is no Block Storage API: give the"
                " node's own endpoint"
            ) from None
        finally:
            connection.close()

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        """A connection, and what every path on it begins with."""
        if self.endpoint.startswith("unix:"):
            return _UnixConnection(self.endpoint.removeprefix("unix:")), "/v3"
        url = urlsplit(self.endpoint)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("give http://HOST:PORT/v3 or unix:PATH")
        kind = (
            http.client.HTTPSConnection
            if url.scheme == "https"
            else http.client.HTTPConnection
        )
        return kind(url.hostname, url.port, timeout=_SECONDS), url.path.rstrip("/")


def _read(status: int, raw: bytes) -> Any:
    """The answer's JSON; of a fault its sentence.

    :raises ValueError: it is none of ours.
    """
    answer: Any = json.loads(raw) if raw else None
    if status < 300:
        return answer
    (fault,) = answer.values()
    if not isinstance(fault, dict) or "message" not in fault:
        raise ValueError("no fault of Block Storage")
    raise Refused(f"{fault['message']} ({status})")
