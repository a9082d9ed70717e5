# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The sockets that listen. systemd keeps them over a restart, so it refuses no client.

A client that connects meanwhile waits in the socket's backlog. A unix socket is not
kept: systemd removes its folder when the daemon ends. Sources: sd_notify(3), FDSTORE
and BARRIER; sd_listen_fds(3).
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import select
import socket
import stat
from collections.abc import Iterable

from lunshare.drivers.sd_notify import notify

#: The host and the port, or the path of a unix socket.
Bind = tuple[str, int] | str

_BACKLOG = 256
_GROUP = "lunshare"
_OWNER_AND_GROUP = 0o660
_EVERY_ADDRESS = "::"
_FIRST = 3  # SD_LISTEN_FDS_START
_BARRIER_SECONDS = 5.0


class KeptSockets:
    """The sockets of this process and, until they are used, of the one before."""

    def __init__(self, wanted: Iterable[Bind]) -> None:
        """Take over the sockets at these addresses; close the others.

        Call it once, before anything is bound: another one may have the port.
        """
        self._sockets = _received()
        unwanted = self._sockets.keys() - set(wanted)
        for bind in unwanted:
            notify("FDSTOREREMOVE=1", f"FDNAME={_name(bind)}")
            self._sockets.pop(bind).close()
        if unwanted:
            _wait_for_systemd()

    def listening_socket(self, bind: Bind) -> socket.socket:
        """Return a socket that listens at this address, and let systemd keep it.

        An address with a name of DNS or a free port is not kept.

        :raises OSError: it cannot be bound.
        """
        if sock := self._sockets.pop(bind, None):
            return sock
        sock = listening_socket(bind)
        if not isinstance(bind, str) and bind == bound_address(sock):
            lines = ("FDSTORE=1", f"FDNAME={_name(bind)}")
            notify(*lines, descriptors=[sock.fileno()])
        return sock


def _received() -> dict[Bind, socket.socket]:
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()):
        return {}
    received = map(_listening, range(_FIRST, _FIRST + int(count)))
    return {bound_address(sock): sock for sock in received if sock is not None}


def _listening(descriptor: int) -> socket.socket | None:
    """Return the socket of a descriptor, None if that is none that listens."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return None
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()  # it is of something else in this process
        return None
    sock.set_inheritable(False)
    return sock


def _name(bind: Bind) -> str:
    """Return the name of a socket for systemd, which may have no colon."""
    return "-".join(map(str, bind)).replace(":", ".")


def _wait_for_systemd() -> None:
    """Wait until systemd has closed what it was told to close."""
    read, write = os.pipe()
    notify("BARRIER=1", descriptors=[write])
    os.close(write)
    poll = select.poll()
    poll.register(read, 0)  # POLLHUP comes without asking
    poll.poll(_BARRIER_SECONDS * 1000)
    os.close(read)


def listening_socket(bind: Bind) -> socket.socket:
    """Return a socket that listens at this address; raise OSError if it cannot."""
    return _unix_socket(bind) if isinstance(bind, str) else _tcp_socket(*bind)


def bound_address(sock: socket.socket) -> Bind:
    """Return the path, or the host and the port, where it is bound."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))


def _tcp_socket(host: str, port: int) -> socket.socket:
    """Bind the first address of the host that can be bound."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem = OSError(f"{host} has no address")
    for family, _, _, _, address in addresses:
        both = address[0] == _EVERY_ADDRESS  # also those of IPv4
        try:
            return socket.create_server(
                address, family=family, backlog=_BACKLOG, dualstack_ipv6=both
            )
        except OSError as error:
            problem = error
    raise problem


def _unix_socket(path: str) -> socket.socket:
    """Bind a path that does not exist, or has the socket of a killed daemon."""
    _remove_stale_socket(path)
    sock = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(sock.fileno(), _OWNER_AND_GROUP)  # before it can be reached
        sock.bind(path)
        # A daemon that root runs by hand. The unit's daemon has this group already, and
        # its SystemCallFilter kills a process that calls chown(2).
        if os.geteuid() == 0:
            with contextlib.suppress(KeyError):
                os.chown(path, -1, grp.getgrnam(_GROUP).gr_gid)
        os.chmod(path, _OWNER_AND_GROUP)  # the umask may have changed it
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


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
