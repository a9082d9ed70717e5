# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One request to a node, over TCP, TLS or a unix socket."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

_SECONDS = 60
_HEADERS = {
    "Content-Type": "application/json",
    "OpenStack-API-Version": "volume latest",
}


class Refused(Exception):
    """The node refused the request. The text is its error sentence.

    ``status`` is that of the answer, 0 where no request was sent.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(Exception):
    """The endpoint does not answer, or is not a Block Storage API."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class NodeClient:
    """A node by its endpoint: ``http://HOST:PORT/v3``, https, or ``unix:PATH``."""

    def __init__(self, endpoint: str, seconds: float = _SECONDS) -> None:
        """``seconds``: how long it waits for each byte of an answer."""
        self.endpoint, self._seconds = endpoint, seconds

    def get(self, path: str) -> Any:
        """Return the answer to a GET.

        :raises Refused: the error sentence of the node.
        :raises Unreachable: names the endpoint and the reason.
        """
        return self._request("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """Return the answer to a POST; raise as ``get`` does."""
        return self._request("POST", path, json.dumps(body))

    def put(self, path: str, body: object) -> Any:
        """Return the answer to a PUT; raise as ``get`` does."""
        return self._request("PUT", path, json.dumps(body))

    def delete(self, path: str) -> Any:
        """Return the answer to a DELETE; raise as ``get`` does."""
        return self._request("DELETE", path, None)

    def local_address(self) -> str:
        """Return the address of this machine on the way to the node; no byte is sent.

        :raises Unreachable: the endpoint is not valid, or there is no way to it.
        """
        url = urlsplit(self.endpoint)
        if url.scheme == "unix":
            return "127.0.0.1"
        port = url.port or {"https": 443}.get(url.scheme, 80)
        try:
            (family, kind, _, _, address), *_ = socket.getaddrinfo(
                url.hostname, port, type=socket.SOCK_DGRAM
            )
            with socket.socket(family, kind) as way:
                way.connect(address)
                return str(way.getsockname()[0])
        except OSError as error:
            raise Unreachable(
                f"there is no way to {self.endpoint} ({error.strerror or error}): check"
                " the endpoint, and this machine's network"
            ) from None

    def _request(self, method: str, path: str, body: str | None) -> Any:
        proof = _proof()
        try:
            connection, root = self._connection()
        except OSError as error:
            raise Refused(
                f"OS_CACERT {os.environ.get('OS_CACERT')} cannot be used"
                f" ({error.strerror or error}): name a file with certificates in PEM"
            ) from None
        except ValueError as error:
            raise Unreachable(
                f"endpoint {self.endpoint} is not valid: {error}"
            ) from None
        try:
            connection.request(method, root + path, body, _HEADERS | proof)
            answer = connection.getresponse()
            return _read(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, PermissionError):
                raise Unreachable(
                    f"{self.endpoint} belongs to root and the group lunshare: use sudo,"
                    " or let an administrator add you to the group"
                ) from None
            why = getattr(error, "strerror", None) or error
            raise Unreachable(
                f"no node answers at {self.endpoint} ({why}): check that lunshared runs"
                " and that this is its endpoint"
            ) from None
        except ValueError:
            raise Unreachable(
                f"{self.endpoint} is not a Block Storage API: give the endpoint of the"
                " node"
            ) from None
        finally:
            connection.close()

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        """Return a connection, and the start of every path on it."""
        if self.endpoint.startswith("unix:"):
            return _UnixConnection(
                self.endpoint.removeprefix("unix:"), self._seconds
            ), "/v3"
        url = urlsplit(self.endpoint)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("give http://HOST:PORT/v3 or unix:PATH")
        where, root = (url.hostname, url.port), url.path.rstrip("/")
        if url.scheme == "http":
            return http.client.HTTPConnection(*where, timeout=self._seconds), root
        trusted = ssl.create_default_context(cafile=os.environ.get("OS_CACERT") or None)
        connection = http.client.HTTPSConnection
        return connection(*where, timeout=self._seconds, context=trusted), root


def every(node: NodeClient, name: str, **query: str) -> Iterator[dict[str, Any]]:
    """Yield every item of a list of ``/lunshare``, such as hosts, page by page."""
    words = urlencode(query)
    while True:
        page = node.get(f"/lunshare/{name}?{words}")
        yield from page[name]
        if f"{name}_links" not in page:
            return
        words = urlsplit(page[f"{name}_links"][0]["href"]).query


def _proof() -> dict[str, str]:
    """Return the headers that prove the identity that the environment names.

    :raises Refused: its token is none.
    """
    token, user = os.environ.get("OS_TOKEN"), os.environ.get("OS_USERNAME")
    if token:
        if not (token.isascii() and token.isprintable()):
            raise Refused("OS_TOKEN has characters that no token has: set it again")
        return {"X-Auth-Token": token}
    if user:
        pair = f"{user}:{os.environ.get('OS_PASSWORD', '')}"
        proven = base64.b64encode(os.fsencode(pair)).decode()
        return {"Authorization": f"Basic {proven}"}
    return {}


def _read(status: int, raw: bytes) -> Any:
    """Return the JSON of an answer.

    :raises Refused: the answer is an error of the API.
    :raises ValueError: the answer is not of a Block Storage API.
    """
    answer: Any = json.loads(raw) if raw else None
    if status < 300:
        return answer
    (fault,) = answer.values() if isinstance(answer, dict) else (None,)
    if not isinstance(fault, dict) or "message" not in fault:
        raise ValueError("not an error of Block Storage")
    raise Refused(f"{fault['message']} ({status})", status)
