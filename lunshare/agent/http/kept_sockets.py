# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Listening sockets that systemd keeps over a restart, so that it refuses no client.

A client that connects meanwhile waits in the socket's backlog. A unix socket is not
kept: systemd removes its folder when the daemon ends. Sources: sd_notify(3), FDSTORE
and BARRIER; sd_listen_fds(3).
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable

from lunshare.agent.http.binding import Bind, bound_address, listening_socket
from lunshare.drivers.sd_notify import notify

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
    sockets = [socket.socket(fileno=_FIRST + number) for number in range(int(count))]
    for sock in sockets:
        sock.set_inheritable(False)
    return {bound_address(sock): sock for sock in sockets}


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
