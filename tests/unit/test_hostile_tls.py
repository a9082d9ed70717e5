# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of TLS that send records without data, which cost more than they weigh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.http import listener
from lunshare.agent.http.tls import Certificates
from lunshare.agent.http.tls_records import RecordTurns
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from tests.api.identity_daemon import certificate
from tests.stands.tls_records import KEY_UPDATE_REQUESTED, RecordClient
from tests.stands.waiting import until

CLIENTS = 20
HEALTH = b"GET /healthz HTTP/1.0\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class TlsServer:
    """A server of health checks, on a port with TLS and on a unix socket."""

    def __init__(self, path: Path) -> None:
        certificate(path)
        self.path = path
        addresses = [Address(("127.0.0.1", 0), tls=True), Address(str(path / "socket"))]
        self.server = listener.serve(_answer, addresses, 1, certificates=self._of)
        self.server.start()

    def _of(self, address: Address) -> Certificates | None:
        return self.pair() if address.tls else None

    def pair(self) -> Certificates:
        """What its files have now."""
        return Certificates(str(self.path / "cert.pem"), str(self.path / "key.pem"))

    def client(self) -> RecordClient:
        """A client of TLS after its handshake."""
        return RecordClient(self.server.bind_addr[1], self.path / "secrets")

    def health_seconds(self) -> float:
        """The time of a health check over the unix socket."""
        began = time.monotonic()
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(60)
            wire.connect(str(self.path / "socket"))
            wire.sendall(HEALTH)
            assert wire.recv(12) == b"HTTP/1.1 200"
        return time.monotonic() - began


def _answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    size = len(environ["wsgi.input"].read())
    start_response("200 OK", [("X-Size", str(size))])
    return []


@pytest.fixture
def running(tmp_path: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path)
    try:
        yield server
    finally:
        server.server.stop()


def test_a_request_with_the_end_of_the_handshake_leaves_the_connection_open(
    running: TlsServer,
) -> None:
    """Its bytes came before the connection could read, and no more was read then."""
    context = ssl.create_default_context(cafile=str(running.path / "cert.pem"))
    context.check_hostname = False
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(inward, outward)
    with socket.create_connection(running.server.bind_addr) as wire:
        wire.settimeout(5)
        while not is_shaken(client):
            if outward.pending:
                wire.sendall(outward.read())
            inward.write(wire.recv(65536))
        for _ in range(3):
            client.write(REQUEST)
            wire.sendall(outward.read())
            assert answer(client, inward, wire).startswith(b"HTTP/1.1 200")


def is_shaken(client: ssl.SSLObject) -> bool:
    """Go on with the handshake; return whether the client has finished it."""
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def answer(client: ssl.SSLObject, inward: ssl.MemoryBIO, wire: socket.socket) -> bytes:
    """The next answer."""
    while True:
        try:
            return client.read()
        except ssl.SSLWantReadError:
            inward.write(wire.recv(65536))


def updates(client: RecordClient) -> bytes:
    """Records that change the key."""
    return b"".join(client.key_update() for _ in range(2500))


def answered_updates(client: RecordClient) -> bytes:
    """Records that change the key, and want an answer."""
    return b"".join(client.key_update(KEY_UPDATE_REQUESTED) for _ in range(2500))


def empty_records(client: RecordClient) -> bytes:
    """Records of data without a byte of it."""
    return b"".join(client.record(b"") for _ in range(5000))


def updates_with_some_data(client: RecordClient) -> bytes:
    """Single bytes of the head of a request, with a change of the key before each."""
    letters = (client.key_update() + client.record(b"a") for _ in range(2000))
    return client.record(b"GET /") + b"".join(letters)


def send(client: RecordClient, records: bytes) -> None:
    """Send them until the server ends the connection."""
    with contextlib.suppress(ConnectionError):
        client.wire.sendall(records)


KINDS = [updates, answered_updates, empty_records, updates_with_some_data]


@pytest.mark.parametrize("records", KINDS)
def test_records_without_data_end_the_connection(
    running: TlsServer, records: Callable[[RecordClient], bytes]
) -> None:
    client = running.client()
    with client.wire as wire:
        sent, began = records(client), time.monotonic()
        try:
            wire.sendall(sent)
            while wire.recv(65536):
                pass
        except ConnectionError:
            pass
    assert time.monotonic() - began < 5  # its deadline is 10 seconds


def test_records_without_data_do_not_delay_health_checks(running: TlsServer) -> None:
    """20 clients took 1.5 s of the loop's thread, which answers health checks too."""
    clients = [running.client() for _ in range(CLIENTS)]
    sent = [updates(client) for client in clients]
    threads = [
        threading.Thread(target=send, args=(client, data), daemon=True)
        for client, data in zip(clients, sent, strict=True)
    ]
    for thread in threads:
        thread.start()
    assert max(running.health_seconds() for _ in range(20)) < 0.5
    for client, thread in zip(clients, threads, strict=True):
        thread.join()
        client.wire.close()


def test_records_leave_turns_of_the_loop_to_others() -> None:
    """Of many clients whose records are costly some wait for the next turn."""
    loop = asyncio.new_event_loop()
    turns, order = RecordTurns(loop), []

    def record() -> None:
        end = time.perf_counter() + 0.006
        while time.perf_counter() < end:
            pass
        order.append("record")
        if order.count("record") == 20:
            loop.stop()

    def other() -> None:
        order.append("other")
        loop.call_soon(other)

    def arrive() -> None:
        if not turns.run(record):
            turns.run_later(record)

    for _ in range(20):
        loop.call_soon(arrive)
    loop.call_soon(other)
    loop.run_forever()
    loop.close()
    rows = "".join(name[0] for name in order).split("o")
    assert max(map(len, rows)) <= 3


def test_a_client_cannot_ask_for_another_handshake(running: TlsServer) -> None:
    """Of TLS 1.2: each costs the server a signature."""
    port = running.server.bind_addr[1]
    words = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}"]
    done = subprocess.run(
        words, input=b"R\n", capture_output=True, check=False, timeout=60
    )
    assert b"RENEGOTIATING" in done.stderr
    assert b"no renegotiation" in done.stderr


def replace(path: Path, replacement: Callable[[Path], object]) -> None:
    """Put something else at the place of a file, at once."""
    other = path.with_suffix(".other")
    replacement(other)
    other.rename(path)


def large_file(path: Path) -> None:
    """A file of 27 MB that begins as a certificate does."""
    path.write_text("-----BEGIN CERTIFICATE-----\n" + "A" * 64 + "\n")
    os.truncate(path, 27_000_000)


@pytest.mark.parametrize(
    ("replacement", "sentence"),
    [
        (os.mkfifo, "is not a file: give a file of PEM"),
        (large_file, "has 27000000 bytes, more than 1048576"),
    ],
)
@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
def test_what_is_no_certificate_is_not_read(
    running: TlsServer,
    name: str,
    replacement: Callable[[Path], object],
    sentence: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replace(running.path / name, replacement)
    until(lambda: sentence in caplog.text)
    running.client().wire.close()  # with the former certificate
    assert running.health_seconds() < 5
    with pytest.raises(StartupError, match=sentence):
        running.pair()


def test_a_certificate_that_hangs_delays_no_client(
    running: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one on a share that does not answer."""
    hanging, go, look = threading.Event(), threading.Event(), os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        if str(path).endswith("cert.pem"):
            hanging.set()
            assert go.wait(60)
        return look(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        assert hanging.wait(20)
        assert running.health_seconds() < 5
        go.set()


def test_many_small_requests_over_one_connection_are_no_attack(
    running: TlsServer,
) -> None:
    client = running.client()
    with client.wire as wire:
        for _ in range(1500):
            wire.sendall(client.record(REQUEST[:10]) + client.record(REQUEST[10:]))
            assert wire.recv(65536)


def test_large_records_that_come_in_pieces_are_no_attack(running: TlsServer) -> None:
    client = running.client()
    body = b"x" * 160_000
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    sent = client.record(head)
    sent += b"".join(
        client.record(body[start : start + 16_000])
        for start in range(0, len(body), 16_000)
    )
    with client.wire as wire:
        for start in range(0, len(sent), 1000):
            wire.sendall(sent[start : start + 1000])
        assert b"X-Size: 160000" in client.read()
