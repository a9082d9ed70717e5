# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""No request is one for a proxy and two for the server behind it (RFC 9112, 11.2).

The proxy names the path of each request that it sends on in X-Sent. A request that the
server sees without that name was the body of another one for the proxy. The proxy keeps
its connection to the server open, so such a request would be answered to the next
client. `tests/proxies/run` installs Debian's packages and runs this.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.http import listener
from lunshare.agent.listen_addresses import Address
from tests.ambiguous_requests import CHUNKED, GET, LENGTH, READ_AS_ONE, REFUSED
from tests.stands.servers import LOOPBACK, Server, free_port, listens
from tests.stands.waiting import until

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

# A request whose end does not come is given up after a second.
HAPROXY = """\
defaults
    mode http
    timeout connect 20s
    timeout client 1s
    timeout server 20s
    http-reuse always
frontend clients
    bind 127.0.0.1:{port}
    http-request set-header X-Sent %[path]
    default_backend node
backend node
    server node unix@{node} pool-max-conn 1
"""
NGINX = """\
daemon off;
master_process off;
error_log stderr;
pid {directory}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_header_timeout 1s;
    client_body_timeout 1s;
    keepalive_timeout 1s;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream node {{ server unix:{node}; keepalive 1; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://node;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_set_header Connection "";
            proxy_set_header X-Sent $uri;
        }}
    }}
}}
"""
PROXIES = {"haproxy": HAPROXY, "nginx": NGINX}
COMMANDS = {
    "haproxy": ("/usr/sbin/haproxy", "-db", "-f"),
    "nginx": ("/usr/sbin/nginx", "-e", "stderr", "-c"),
}


class Node:
    """lunshare's HTTP server; it notes each request as the proxy and it see it."""

    def __init__(self, path: Path) -> None:
        self.path, self.requests = str(path), list[tuple[str, str | None]]()
        self._server = listener.serve(self._app, [Address(self.path)], 1)
        self._server.start()

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ["wsgi.input"].read()
        path = environ["PATH_INFO"]
        self.requests.append((path, environ.get("HTTP_X_SENT")))
        start_response("200 OK", [("X-Path", path)])
        return []

    def stop(self) -> None:
        """End it."""
        self._server.stop()


class Proxy:
    """One of them in front of a node."""

    def __init__(self, name: str, node: Node, directory: Path) -> None:
        self.node, self._port, self._count = node, free_port(), 0
        text = PROXIES[name].format(
            port=self._port, node=node.path, directory=directory
        )
        config = directory / f"{name}.conf"
        config.write_text(text)
        self.server = Server(name, directory)
        self.server.run([*COMMANDS[name], str(config)])
        until(lambda: listens(self._port), name)

    def answers(self, data: bytes) -> bytes:
        """Send this as a client, and return all that comes until the end."""
        with socket.create_connection((LOOPBACK, self._port), 60) as wire:
            try:
                wire.sendall(data)
                return b"".join(iter(partial(wire.recv, 65536), b""))
            except ConnectionResetError:  # it has refused before all was read
                return b""

    def need_own_answer(self) -> None:
        """The next client gets the answer of its own request."""
        self._count += 1
        path = f"/client-{self._count}".encode()
        answer = self.answers(LAST.replace(b"/last", path))
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert path in answer


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    directory = tmp_path_factory.mktemp(request.param)
    node = Node(directory / "api.sock")
    made = Proxy(request.param, node, directory)
    yield made
    made.server.end()
    node.stop()


@pytest.mark.parametrize("data", [*REFUSED, *READ_AS_ONE])
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "second"])
@pytest.mark.parametrize("body", [b"", HIDDEN], ids=["plain", "hidden"])
def test_both_see_the_same_requests(
    data: bytes, before: bytes, body: bytes, proxy: Proxy
) -> None:
    proxy.node.requests.clear()
    proxy.answers(before + data + body + LAST)
    proxy.need_own_answer()
    assert {path for path, _ in proxy.node.requests} <= {
        *("/", "/hidden", "/last"),
        f"/client-{proxy._count}",
    }
    for path, sent in proxy.node.requests:
        assert sent == path


@pytest.mark.parametrize(
    "data",
    [LENGTH % len(HIDDEN) + HIDDEN, CHUNKED + b"%x\r\n" % len(HIDDEN) + HIDDEN],
    ids=["length", "chunks"],
)
def test_request_in_a_body_is_none(data: bytes, proxy: Proxy) -> None:
    proxy.node.requests.clear()
    end = b"\r\n0\r\n\r\n" if data.startswith(CHUNKED) else b""
    proxy.answers(data + end + LAST)
    assert [path for path, _ in proxy.node.requests] == ["/", "/last"]
    proxy.need_own_answer()


def test_the_server_is_reached_by_connections_that_stay_open(proxy: Proxy) -> None:
    """Else what it saw too much of would reach no other client."""
    for _ in range(3):
        proxy.need_own_answer()
