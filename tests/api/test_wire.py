# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The API over a real socket and the daemon's own HTTP server."""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from lunshare.agent import listen_addresses, request_scope
from lunshare.agent.http import listener
from tests.api.calls import Api
from tests.stands.node import Node
from tests.stands.waiting import until

JSON = {"Content-Type": "application/json"}
VOLUME = b'{"volume": {"size": 1}}'


@pytest.fixture(scope="module")
def port(node: Node) -> Iterator[int]:
    """Where the node listens."""
    address = listen_addresses.Address(("127.0.0.1", 0))
    server = listener.serve(node.assembly.app, [address], threads=8)
    server.start()
    yield server.bind_addr[1]
    server.stop()


def exchange(port: int, request: bytes) -> tuple[int, bytes, bytes]:
    """Send bytes as they are; status, head and body of what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        wire.sendall(request)
        wire.shutdown(socket.SHUT_WR)
        came = b"".join(iter(lambda: wire.recv(65536), b""))
    head, _, body = came.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, body


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    """A request on one connection that ends with it."""
    lines = [f"{line} HTTP/1.1", "Host: node", "Connection: close", *headers]
    if body and not any(each.startswith("Content-Type") for each in headers):
        lines.append("Content-Type: application/json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_the_time_of_a_request_begins_before_it_has_a_thread() -> None:
    """So the access log and the metrics show how long a busy node lets it wait."""
    first, go, waited = threading.Event(), threading.Event(), []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        waited.append(time.perf_counter() - environ[request_scope.BEGAN])
        first.set()
        assert go.wait(20)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    address = listen_addresses.Address(("127.0.0.1", 0))
    server = listener.serve(app, [address], threads=1)
    server.start()
    port = server.bind_addr[1]
    with ThreadPoolExecutor(2) as clients:
        one = clients.submit(exchange, port, request("GET /1"))
        assert first.wait(20)
        other = clients.submit(exchange, port, request("GET /2"))
        until(lambda: server.strangers._items._count.qsize() == 1)
        queued = time.perf_counter()
        until(lambda: time.perf_counter() > queued + 0.2)
        go.set()
        assert (one.result()[0], other.result()[0]) == (200, 200)
    server.stop()
    assert waited[0] < waited[1]
    assert waited[1] > 0.2


def test_a_request_over_a_socket_is_answered(port: int):
    status, head, body = exchange(port, request("GET /v3/p/volumes"))
    assert status == 200
    assert b"application/json" in head
    assert json.loads(body) == {"volumes": []}


def test_head_sends_no_body(port: int):
    status, head, body = exchange(port, request("HEAD /v3/p/volumes"))
    assert (status, body) == (200, b"")
    _, _, got = exchange(port, request("GET /v3/p/volumes"))
    assert f"content-length: {len(got)}\r\n".encode() in head.lower()


def test_a_chunked_body_is_read(port: int, api: Api):
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(VOLUME), VOLUME)
    line = f"POST /v3/{api.project}/volumes"
    asked = request(line, "Transfer-Encoding: chunked", body=chunks)
    assert exchange(port, asked)[0] == 202
    assert len(api("GET", "/volumes")["volumes"]) == 1


def test_a_chunked_body_over_the_limit_is_413(port: int, api: Api, node: Node):
    line = f"POST /v3/{api.project}/volumes"
    over = node.conf.osapi_max_request_body_size + 1
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (over, b" " * over)
    asked = request(line, "Transfer-Encoding: chunked", body=chunks)
    assert exchange(port, asked)[0] == 413


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        ("GET /v3/p/volumes", ()),
        ("DELETE /v3/p/volumes/x", ()),
        ("GET /v3/p/nothing", ()),
        ("PUT /v3/p/volumes", ()),
        ("POST /v3/p/volumes", ("Content-Type: text/plain",)),
        ("POST /v3/p/volumes", ("OpenStack-API-Version: volume 3.99",)),
    ],
)
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/1.0"])
def test_an_unread_chunked_body_is_never_a_request(
    port: int, line: str, headers: tuple[str, ...], protocol: str
):
    inner = b"GET /v3/p/volumes HTTP/1.1\r\nHost: node\r\n\r\n"
    head = [
        f"{line} {protocol}",
        "Host: node",
        "Connection: Keep-Alive",
        "Transfer-Encoding: chunked",
        *headers,
    ]
    asked = "\r\n".join(head).encode() + b"\r\n\r\n"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
    for body in (chunks, inner):
        _, _, rest = exchange(port, asked + body)
        assert b"HTTP/1.1 " not in rest


@pytest.mark.parametrize("length", ["word", "-1", "1e3", "9" * 30])
def test_an_invalid_content_length_is_400(port: int, length: str):
    asked = request("POST /v3/p/volumes", f"Content-Length: {length}", body=VOLUME)
    assert exchange(port, asked)[0] in (400, 413)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 23", "Content-Length: 23"),
        ("Content-Length: 0", "Content-Length: 23"),
        ("Content-Length: 23", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Host: another",),
    ],
)
def test_a_request_with_two_possible_ends_is_400_and_nothing_of_it_is_done(
    port: int, api: Api, headers: tuple[str, ...]
):
    """A proxy before this node may see another end, and so another next request."""
    line = f"POST /v3/{api.project}/volumes"
    inner = request(line, f"Content-Length: {len(VOLUME)}", body=VOLUME)
    head = f"{line} HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
    lines = "".join(f"{each}\r\n" for each in headers)
    asked = f"{head}{lines}\r\n".encode() + VOLUME + b"0\r\n\r\n" + inner
    status, _, body = exchange(port, asked)
    assert status == 400
    assert json.loads(body)["badRequest"]["message"]
    assert b"HTTP/1.1 " not in body
    assert api("GET", "/volumes")["volumes"] == []


def test_a_body_that_ends_early_is_400(port: int, api: Api):
    line = f"POST /v3/{api.project}/volumes"
    asked = request(line, f"Content-Length: {len(VOLUME) + 9}", body=VOLUME[:-4])
    assert exchange(port, asked)[0] == 400
    assert api("GET", "/volumes")["volumes"] == []


def test_a_request_whose_unused_body_ends_early_is_400_and_not_done(
    port: int, api: Api
):
    volume_id = api.volume()["id"]
    line = f"DELETE /v3/{api.project}/volumes/{volume_id}"
    status, _, body = exchange(port, request(line, "Content-Length: 9", body=b"{}"))
    assert (status, json.loads(body)["badRequest"]["code"]) == (400, 400)
    assert api("GET", f"/volumes/{volume_id}")["volume"]["status"] == "available"


def test_a_connection_goes_on_after_a_chunked_body(port: int, api: Api):
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(VOLUME), VOLUME)
    head = (
        f"POST /v3/{api.project}/volumes HTTP/1.1\r\nHost: node\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    status, head_of_first, rest = exchange(
        port, (head.encode() + chunks) * 2 + request("GET /v3/p/volumes")
    )
    assert status == 202
    assert b"connection:" not in head_of_first.lower()
    assert (rest.count(b"HTTP/1.1 202 "), rest.count(b"HTTP/1.1 200 ")) == (1, 1)
    assert len(api("GET", "/volumes")["volumes"]) == 2


def test_a_client_that_reads_late_gets_the_whole_answer_to_its_last_request(
    port: int, api: Api
):
    for _ in range(20):
        api.volume(metadata={f"k{n}": "v" * 255 for n in range(40)})
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        wire.sendall(request(f"GET /v3/{api.project}/volumes/detail"))
        until(lambda: bool(select.select([wire], [], [], 0)[0]))
        came = b"".join(iter(lambda: wire.recv(65536), b""))
    _, _, body = came.partition(b"\r\n\r\n")
    assert len(json.loads(body)["volumes"]) == 20


def test_a_client_that_sends_more_than_its_last_request_gets_its_answer(
    port: int, api: Api
):
    """A close at once would reset the connection, and the answer could be lost."""
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
            wire.sendall(request("GET /v3/p/volumes") + b"\r\n" * 20_000)
            came = b"".join(iter(lambda wire=wire: wire.recv(65536), b""))  # type: ignore[misc]
        assert came.startswith(b"HTTP/1.1 200 ")
        assert came.endswith(b'{"volumes":[]}')


@pytest.mark.parametrize("keep", [True, False])
def test_a_client_of_http_1_0_says_whether_its_connection_goes_on(
    port: int, keep: bool
):
    more = "Connection: keep-alive\r\n" if keep else ""
    one = f"GET /v3/p/volumes HTTP/1.0\r\n{more}\r\n".encode()
    status, head, rest = exchange(port, one * 2)
    assert status == 200
    assert f"connection: {'keep-alive' if keep else 'close'}" in head.decode().lower()
    assert rest.count(b"HTTP/1.1 200 ") == int(keep)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /v3/p/volumes HTTP/2.0", 505),
        ("GET /v3/p/volumes HTTP/1.2", 505),
        ("GET http://node/v3/p/volumes HTTP/1.1", 400),
        ("get /v3/p/volumes HTTP/1.1", 400),
        ("GET /v3/p/volumes", 505),  # the form of HTTP/0.9
        ("BREW /v3/p/volumes HTTP/1.1", 400),  # llhttp has a list of methods
        (f"GET /{'x' * 70_000} HTTP/1.1", 413),
    ],
)
def test_a_first_line_that_cannot_be_answered_is_refused(
    port: int, line: str, status: int
):
    asked = f"{line}\r\nHost: node\r\n\r\n".encode() + request("GET /v3/p/volumes")
    got, head, body = exchange(port, asked)
    assert got == status
    assert b"\r\nConnection: close" in head
    assert head.count(b"\r\nDate: ") == 1  # RFC 9110, 6.6.1
    (fault,) = json.loads(body).values()
    assert fault["code"] == status


@pytest.mark.parametrize("method", ["PROPFIND", "TRACE"])
def test_a_method_of_no_route_is_405_and_lists_the_methods(port: int, method: str):
    status, head, body = exchange(port, request(f"{method} /v3/p/volumes"))
    assert status == 405
    assert b"\r\nallow: get, head, post\r\n" in head.lower()
    assert json.loads(body)["badMethod"]["code"] == 405


def test_a_line_break_in_a_url_is_not_in_the_headers(port: int):
    for path in ("/v3/p/volumes/x%0d%0aSet-Cookie:%20a=b", "/v3/p%0d%0aX:%20y/volumes"):
        status, head, _ = exchange(port, request(f"GET {path}"))
        assert status in (400, 404)
        assert b"set-cookie" not in head.lower()
        assert b"\r\nX: y" not in head


@pytest.mark.parametrize("key", ["a/b", "a%2Fb", "/", "100%", "%", "%25", "a%/b", "é/"])
def test_a_name_with_a_quoted_slash_or_percent_has_a_url(
    port: int, api: Api, key: str
) -> None:
    volume = api.volume(metadata={key: "value", "other": "x"})
    item = f"/v3/{api.project}/volumes/{volume['id']}/metadata/{quote(key, safe='')}"
    who = f"X-Auth-Token: user:{api.project}"
    code, _, body = exchange(port, request(f"GET {item}", who))
    assert (code, json.loads(body)) == (200, {"meta": {key: "value"}})
    new = json.dumps({"meta": {key: "new"}}).encode()
    size = f"Content-Length: {len(new)}"
    assert exchange(port, request(f"PUT {item}", who, size, body=new))[0] == 200
    assert exchange(port, request(f"DELETE {item}", who))[0] == 200
    assert api.shown(volume["id"])["metadata"] == {"other": "x"}


def test_a_project_with_a_quoted_slash_is_one_name(port: int, api: Api) -> None:
    who = "X-Auth-Token: user:a/b%"
    code, _, body = exchange(port, request("GET /v3/a%2Fb%25/volumes?limit=1", who))
    assert (code, json.loads(body)) == (200, {"volumes": []})


def test_a_name_is_read_as_utf_8_in_urls(port: int, api: Api):
    made = api.volume(name="größe")
    path = f"/v3/{api.project}/volumes?name=gr%C3%B6%C3%9Fe"
    _, _, body = exchange(port, request(f"GET {path}"))
    assert [volume["id"] for volume in json.loads(body)["volumes"]] == [made["id"]]


def test_many_clients_at_once_get_their_own_answers(port: int):
    def client_requests(number: int) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"X-Auth-Token": f"u{number}:wire{number}"}

        def send(method: str, path: str, body: object = None) -> bytes:
            raw = None if body is None else json.dumps(body)
            wire.request(method, f"/v3{path}", raw, {**headers, **JSON})
            answer = wire.getresponse()
            came = answer.read()
            assert answer.status < 300, came
            return came

        for turn in range(5):
            asked = {"volume": {"size": 1, "name": f"{number}-{turn}"}}
            made = json.loads(send("POST", "/volumes", asked))["volume"]
            shown = json.loads(send("GET", f"/volumes/{made['id']}"))["volume"]
            assert shown["name"] == f"{number}-{turn}"
            assert shown["user_id"] == f"u{number}"
        listed = json.loads(send("GET", "/volumes"))["volumes"]
        assert {v["name"] for v in listed} == {f"{number}-{turn}" for turn in range(5)}
        wire.close()

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(client_requests, range(8)))
