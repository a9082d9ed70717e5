# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where the API listens, and who may be let in there without a password."""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cheroot import wsgi
from cheroot.server import HTTPConnection, HTTPRequest

from agent.errors import StartupError

_FORM = "give HOST:PORT, [IPV6]:PORT or unix:PATH"
_FOLLOWS = 2  # milliseconds
_HEADERS_MAX = 64 * 1024
_OWNER_AND_GROUP = 0o660


@dataclass(frozen=True, slots=True)
class Address:
    """A checked listen address."""

    bind: tuple[str, int] | str

    @property
    def private(self) -> bool:
        """Whether only this machine's own processes can reach it."""
        if isinstance(self.bind, str):
            return True
        try:
            return ipaddress.ip_address(self.bind[0]).is_loopback
        except ValueError:
            return False  # a name may mean another address tomorrow

    def __str__(self) -> str:
        if isinstance(self.bind, str):
            return f"unix:{self.bind}"
        host, port = self.bind
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(text: str, auth_strategy: str) -> Address:
    """Read the option ``listen``.

    :raises StartupError: it has no form that is known, or would let anyone in.
    """
    address = _parse(text)
    if auth_strategy == "noauth" and not address.private:
        raise StartupError(
            f"listen = {text} with auth_strategy = noauth would make everyone who"
            " reaches it an administrator: listen on a loopback address such as"
            " 127.0.0.1:8776, or on unix:PATH"
        )
    return address


def _parse(text: str) -> Address:
    if text.startswith("unix:/"):
        return Address(text.removeprefix("unix:"))
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isdecimal() and int(port) < 65536):
        raise StartupError(f"listen = {text} is not valid: {_FORM}")
    if host == "localhost":
        host = "127.0.0.1"
    return Address((host, int(port)))


class Request(HTTPRequest):
    """A request that is the last of its connection if its body came in chunks.

    Cheroot reads what an answer left of a body of known length, and nothing of
    a chunked one: the rest of it would be taken for the next request.
    """

    def parse_request(self) -> None:
        """Read the head, and decide what becomes of the connection."""
        super().parse_request()
        if b"Transfer-Encoding" in self.inheaders:
            self.close_connection = True


class Connection(HTTPConnection):
    """A connection whose next request stays with the thread that had the last.

    Cheroot gives a connection back to its selector after each request, and two
    more threads are woken for the next one. With 32 clients that each show a
    volume again and again: 984 requests/s so, 1,302 this way (medians of four
    turns each on a busy machine, 2 cores, Python 3.11, cheroot 11.1).
    """

    RequestHandlerClass = Request

    def communicate(self) -> bool:
        """Answer requests as long as they follow one another."""
        while super().communicate():  # type: ignore[no-untyped-call]
            if not self._follows():
                return True
        return False

    def _follows(self) -> bool:
        """Whether the next request is here in a moment, and no other is waiting."""
        if self.server.requests.qsize:
            return False
        if self.rfile.has_data():
            return True
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(_FOLLOWS))


class Server(wsgi.Server):
    """A server that takes nobody's place on a unix socket.

    Cheroot 11.1 removes whatever stands at the path, another daemon's socket or
    a file, and lets everyone connect to what it makes there.
    """

    def bind_unix_socket(self, bind_addr: str) -> socket.socket:
        """Bind where nothing is, or where a killed daemon left its socket."""
        _make_room(bind_addr)
        self.socket = made = socket.socket(socket.AF_UNIX)
        os.fchmod(made.fileno(), _OWNER_AND_GROUP)  # and no more, from the first
        made.bind(bind_addr)
        os.chmod(bind_addr, _OWNER_AND_GROUP)  # whatever the umask took
        return made


def serve(
    app: Callable[..., Any], address: Address, threads: int, max_body: int = 2**20
) -> wsgi.Server:
    """Bind; the caller runs ``serve()`` on what is returned, and ``stop()``.

    ``max_body`` is the largest request body in bytes that the app takes.

    :raises StartupError: the address cannot be had.
    """
    server = Server(address.bind, app, numthreads=threads, request_queue_size=256)
    server.error_log = _quiet  # type: ignore[method-assign,assignment]
    server.ConnectionClass = Connection
    # Cheroot's default of 10 makes an eleventh idle client connect anew. Idle
    # connections are closed after 10 seconds, however many they are.
    server.keep_alive_conn_limit = None  # type: ignore[assignment]
    server.max_request_header_size = _HEADERS_MAX
    # The app says 413 itself and reads no further. This is the wall behind it:
    # without one, cheroot would read the rest of a refused body into memory.
    server.max_request_body_size = 4 * max_body
    try:
        server.prepare()
    except OSError as error:
        raise StartupError(
            f"listen = {address} cannot be bound ({error}): is another daemon there?"
        ) from error
    return server


def _make_room(path: str) -> None:
    """Remove the socket that a killed daemon left, and nothing else.

    :raises OSError: something else is there, or somebody answers.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "something that is no socket is there")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "somebody answers there")
    os.unlink(path)


def _quiet(message: str = "", level: int = 20, traceback: bool = False) -> None:
    """Cheroot's own words (a client went away) are not our operator's business."""
