# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon with a unix socket and TLS: who reaches it, and how certificates change."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lunshare.agent.http.tls import Certificates
from lunshare.agent.model.errors import StartupError
from tests.api.identity_daemon import Running, certificate, daemon, users
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

BASIC = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("listeners")
    certificate(path)
    options = BASIC.format(users(path, alice="member:p"))
    with daemon(path, options, scheme="https://") as started:
        yield started


def connection(running: Running) -> ssl.SSLSocket:
    """A new connection after its handshake."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", running.port), timeout=20)
    return anybody.wrap_socket(plain, server_hostname="localhost")


def shown_name(running: Running) -> str:
    """The common name of the certificate that a new connection gets."""
    with connection(running) as wire:
        der = wire.getpeercert(binary_form=True)
    assert der
    return ssl.DER_cert_to_PEM_cert(der)


def test_a_client_of_the_unix_socket_is_an_administrator_without_proof(
    running: Running,
):
    answer = running.unix("GET", "/v3/os-services")
    assert (answer.status, answer.headers["x-openstack-request-id"][:4]) == (
        200,
        "req-",
    )
    made = running.unix("POST", "/v3/volumes", body={"volume": {"size": 1}})
    assert made.status == 202
    assert made.body["volume"]["user_id"] == str(os.getuid())


def test_only_owner_and_group_may_open_the_unix_socket(running: Running):
    found = os.stat(running.socket)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o660


def test_headers_do_not_make_a_client_of_tcp_a_peer(running: Running):
    spoofed = {"X-Remote-Uid": "0", "X_REMOTE_UID": "0", "X-Roles": "admin"}
    answer = running.https("GET", "/v3/volumes", headers=spoofed)
    assert answer.fault[:2] == (401, "unauthorized")


def test_tls_serves_a_body_of_many_records(running: Running):
    text = "x" * 60_000
    body = {
        "volume": {"size": 1, "metadata": {f"k{n}": text[:255] for n in range(200)}}
    }
    made = running.unix("POST", "/v3/p/volumes", body=body)
    assert made.status == 202
    headers = {"Authorization": "Basic YWxpY2U6cmlnaHQgcGFzc3dvcmQ="}
    path = f"/v3/p/volumes/{made.body['volume']['id']}"
    seen = running.https("GET", path, headers=headers)
    assert seen.status == 200
    assert len(seen.body["volume"]["metadata"]) == 200
    links = seen.body["volume"]["links"]
    assert links[0]["href"].startswith(f"https://localhost:{running.port}/v3/")
    change = {"volume": {"metadata": body["volume"]["metadata"]}}
    assert running.https("PUT", path, headers=headers, body=change).status == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_tls_1_1_is_refused(running: Running):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    where = ("127.0.0.1", running.port)
    with (
        socket.create_connection(where, timeout=20) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        old.wrap_socket(plain)


def test_slow_handshakes_hold_no_thread(running: Running):
    where = ("127.0.0.1", running.port)
    silent = [socket.create_connection(where, timeout=20) for _ in range(64)]
    try:
        for wire in silent:
            wire.sendall(b"\x16\x03\x01")  # the start of a ClientHello
        began = time.monotonic()
        assert running.https("GET", "/v3").status == 200
        assert time.monotonic() - began < 5
    finally:
        for wire in silent:
            wire.close()


def test_a_connection_with_tls_takes_less_than_50_kib(running: Running):
    """256 KiB more with the buffer that asyncio allocates: sslproto, max_size."""
    process = running.process
    assert process
    daemon_process = psutil.Process(process.pid)
    with contextlib.ExitStack() as opened:
        for count in (50, 200):
            before = daemon_process.memory_info().rss
            for _ in range(count):
                opened.enter_context(connection(running))
            # The one that came last has been read, so all have.
            assert running.https("GET", "/healthz").status == 200
        assert daemon_process.memory_info().rss - before < 200 * 50 * 1024


def test_plain_http_on_a_port_with_tls_is_closed(running: Running):
    with pytest.raises((ConnectionError, OSError)):
        running.http("GET", "/v3")
    assert running.https("GET", "/healthz").status == 200


def test_a_new_certificate_is_used_without_a_restart(running: Running):
    before = shown_name(running)
    certificate(running.path, "second")
    until(lambda: shown_name(running) != before)
    assert running.https("GET", "/healthz").status == 200


def test_a_certificate_without_its_key_changes_nothing_until_the_key_is_there(
    running: Running, tmp_path: Path
):
    before = shown_name(running)
    certificate(tmp_path, "third")
    shutil.copy(tmp_path / "cert.pem", running.path / "cert.pem")
    until(lambda: "the former certificate stays" in running.output())
    assert "is not the key of the certificate" in running.output()
    assert shown_name(running) == before
    shutil.copy(tmp_path / "key.pem", running.path / "key.pem")
    until(lambda: shown_name(running) != before)


def test_sighup_reads_the_certificate_again(running: Running):
    loaded = running.output().count("[tls] certificate loaded")
    os.kill(running.pid, signal.SIGHUP)
    until(lambda: running.output().count("[tls] certificate loaded") > loaded)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        (0o604, "has mode 0604, so everybody can read it: chmod o-r"),
        (0o620, "has mode 0620, so others can write it: chmod go-w"),
    ],
)
def test_a_key_that_others_can_use_is_a_start_error(
    mode: int, sentence: str, tmp_path: Path
):
    certificate(tmp_path)
    (tmp_path / "key.pem").chmod(0o640)
    Certificates(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    (tmp_path / "key.pem").chmod(mode)
    with pytest.raises(StartupError, match=f"key.pem {sentence}"):
        Certificates(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))


def test_a_key_of_another_certificate_is_a_start_error(tmp_path: Path):
    certificate(tmp_path)
    shutil.copy(tmp_path / "cert.pem", tmp_path / "first.pem")
    certificate(tmp_path)
    with pytest.raises(StartupError, match="is not the key of the certificate in"):
        Certificates(str(tmp_path / "first.pem"), str(tmp_path / "key.pem"))
    with pytest.raises(StartupError, match="cannot be read"):
        Certificates(str(tmp_path / "no.pem"), str(tmp_path / "key.pem"))
    (tmp_path / "first.pem").write_text("no PEM")
    with pytest.raises(StartupError, match="cannot be used"):
        Certificates(str(tmp_path / "first.pem"), str(tmp_path / "key.pem"))
