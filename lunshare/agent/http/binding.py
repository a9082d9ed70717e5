# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Bind the addresses at which the daemon listens."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
from typing import Any

#: The host and the port, or the path of a unix socket.
Bind = tuple[str, int] | str

_BACKLOG = 256
_GROUP = "lunshare"
_OWNER_AND_GROUP = 0o660
_EVERY_ADDRESS = "::"


def listening_socket(bind: Bind) -> socket.socket:
    """Return a socket that listens at this address; raise OSError if it cannot."""
    sock = _unix_socket(bind) if isinstance(bind, str) else _tcp_socket(*bind)
    sock.listen(_BACKLOG)
    return sock


def bound_address(sock: socket.socket) -> Bind:
    """Return the path, or the host and the port, where it is bound."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))


def _tcp_socket(host: str, port: int) -> socket.socket:
    """Bind the first address of the host that can be bound."""
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = socket.getaddrinfo(host, port, type=kind, flags=passive)
    for family, _, _, _, address in found[:-1]:
        with contextlib.suppress(OSError):
            return _bound_tcp(family, address)
    family, _, _, _, address = found[-1]
    return _bound_tcp(family, address)


def _bound_tcp(family: socket.AddressFamily, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    host, port, *_ = address
    try:
        if port:  # not for any free port, which another process could have then
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host == _EVERY_ADDRESS:  # those of IPv4 too
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _unix_socket(path: str) -> socket.socket:
    """Bind a path that does not exist, or has the socket of a killed daemon."""
    _remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(bound.fileno(), _OWNER_AND_GROUP)  # before it can be reached
        bound.bind(path)
        # A daemon that root runs by hand. The unit's daemon has this group already, and
        # its SystemCallFilter kills a process that calls chown(2).
        if os.geteuid() == 0:
            with contextlib.suppress(KeyError):
                os.chown(path, -1, grp.getgrnam(_GROUP).gr_gid)
        os.chmod(path, _OWNER_AND_GROUP)  # the umask may have changed it
    except OSError:
        bound.close()
        raise
    return bound


def _remove_stale_socket(path: str) -> None:
    """Remove a socket on which no process listens, and nothing else.

    :raises OSError: the path is not a socket, or a process listens there.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "the file there is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)
