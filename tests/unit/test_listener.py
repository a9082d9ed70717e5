# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where the API may listen."""

from __future__ import annotations

import re
import socket
import time
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.http import listener
from lunshare.agent.listen_addresses import Address, parse
from lunshare.agent.model.errors import StartupError


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:8776", ("127.0.0.1", 8776)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:8776", ("::1", 8776)),
        ("127.8.8.8:8776", ("127.8.8.8", 8776)),
        ("https://127.0.0.1:8776", ("127.0.0.1", 8776)),
        ("unix:/run/x.sock", "/run/x.sock"),
    ],
)
def test_noauth_may_listen_on_addresses_of_this_machine(
    text: str, bind: object
) -> None:
    (address,) = parse([text], "noauth", noauth=True)
    assert address.bind == bind
    assert str(address) == text.replace("localhost", "127.0.0.1")


@pytest.mark.parametrize(
    "text", ["https://0.0.0.0:8776", "https://[::]:1", "https://example.com:8776"]
)
def test_noauth_is_refused_on_other_addresses(text: str) -> None:
    with pytest.raises(StartupError, match="set auth_strategy to http_basic"):
        parse([text], "noauth", noauth=True)
    assert parse([text], "keystone", noauth=False)[0].tls


def test_noauth_on_loopback_needs_its_option_and_a_unix_socket_does_not() -> None:
    with pytest.raises(StartupError, match="set noauth_on_loopback = true"):
        parse(["127.0.0.1:8776"], "noauth", noauth=False)
    assert parse(["unix:/run/x"], "noauth", noauth=False)[0].is_socket


@pytest.mark.parametrize("text", ["0.0.0.0:8776", "[::]:8776", "192.0.2.1:8776", "a:1"])
def test_an_address_of_the_network_needs_tls(text: str) -> None:
    with pytest.raises(StartupError, match=r"in clear text: write https://"):
        parse([text], "keystone", noauth=True)


@pytest.mark.parametrize(
    "text",
    ["", "8776", "127.0.0.1", "127.0.0.1:x", "unix:x", "127.0.0.1:99999", "http://a:1"],
)
def test_an_address_of_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match="give HOST:PORT"):
        parse([text], "noauth", noauth=True)


def test_listen_names_at_least_one_address_and_none_twice() -> None:
    with pytest.raises(StartupError, match="listen is empty"):
        parse([], "noauth", noauth=True)
    with pytest.raises(StartupError, match="names an address twice"):
        parse(["127.0.0.1:1", "https://127.0.0.1:1"], "noauth", noauth=True)


def test_a_port_in_use_is_reported_in_one_sentence() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = Address(other.getsockname())
        with pytest.raises(StartupError, match="check whether another daemon uses it"):
            listener.serve(lambda *_: [], [address], 1)


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = listener.serve(lambda *_: [], [Address(str(path))], 1)
    try:
        assert path.stat().st_mode & 0o777 == 0o660
    finally:
        server.stop()


def test_a_socket_of_a_running_daemon_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(StartupError, match="another process listens there"):
            listener.serve(lambda *_: [], [Address(str(path))], 1)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_file_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    path.write_text("the only copy")
    with pytest.raises(StartupError, match="not a socket"):
        listener.serve(lambda *_: [], [Address(str(path))], 1)
    assert path.read_text() == "the only copy"


def _no_content(environ: object, start_response: Any) -> list[bytes]:
    start_response("204 No Content", [])
    return []


def test_each_answer_has_its_own_date(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    server = listener.serve(_no_content, [Address(str(path))], 1)
    server.start()
    dates = []
    try:
        for _ in range(2):
            before = int(time.time())
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                head = b"".join(iter(partial(client.recv, 4096), b"")).decode()
            (date,) = re.findall(r"^Date: (.*)\r$", head, re.M)
            found = parsedate_to_datetime(date).timestamp()
            assert before <= found <= time.time()
            dates.append(date)
            while int(time.time()) <= found:
                time.sleep(0.01)
    finally:
        server.stop()
    assert dates[0] != dates[1]
