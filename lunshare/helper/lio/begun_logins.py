# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logins that have begun and not ended. The kernel does not show them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator

from lunshare.helper.lio import kernel_threads
from lunshare.helper.lio.configfs import ISCSI, names

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# ESTABLISHED, and CLOSE_WAIT: the host has closed it, and the kernel not yet.
_STATES = ("01", "08")
# Of a socket that nobody has accepted yet.
_NO_INODE = "0"
# So long it is believed that there are some. The kernel ends one after 15 s.
_BELIEVED_SECONDS = 5.0

#: The node's port, both addresses, and the number that no other socket gets.
_Socket = tuple[int, str, str, str]


class BegunLogins:
    """What is known of the node's connections, so that its processes are read rarely.

    Each connection that has logged in has a thread of the kernel, which starts with
    that (iscsi_target_nego.c), and stays logged in. The number of sessions does not
    tell: a dead session has no connection, and would hide a begun login.
    """

    def __init__(self) -> None:
        self._mutex, self._until = threading.Lock(), float("-inf")
        self._logged_in = frozenset[_Socket]()

    def may_exist(self, group: str) -> bool:
        """Whether a host may have begun a login at the portals of a portal group.

        However many ask, the processes are read once for each new connection at most,
        and once in five seconds while there are some that have not logged in.
        """
        with self._mutex:
            if _sockets(_ports([group])) <= self._logged_in:
                return False
            now = time.monotonic()
            if now >= self._until:
                self._look(now)
            return now < self._until

    def _look(self, now: float) -> None:
        groups = (
            f"{ISCSI}/{name}/{group}"
            for name in names(ISCSI)
            for group in names(f"{ISCSI}/{name}")
        )
        sockets = _sockets(_ports(groups))
        if len(sockets) > len(kernel_threads.named(kernel_threads.RECEIVES)):
            self._until = now + _BELIEVED_SECONDS
        else:
            self._logged_in = frozenset(one for one in sockets if one[-1] != _NO_INODE)


#: Those of this node.
LOGINS = BegunLogins()


def _ports(groups: Iterable[str]) -> set[int]:
    portals = (portal for group in groups for portal in names(group + "/np"))
    return {int(portal.rpartition(":")[2]) for portal in portals}


def _sockets(ports: set[int]) -> set[_Socket]:
    """Return the connections at these ports. Their form: proc(5), net/tcp."""
    return {socket for socket in _open_sockets() if socket[0] in ports}


def _open_sockets() -> Iterator[_Socket]:
    for table in filter(os.path.exists, _TABLES):
        with open(table, encoding="ascii") as lines:
            for words in map(str.split, lines):
                if words[3] in _STATES:
                    port = int(words[1].rpartition(":")[2], 16)
                    yield port, words[1], words[2], words[9]
