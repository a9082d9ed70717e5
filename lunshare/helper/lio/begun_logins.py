# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logins that have begun and not ended. The kernel does not show them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from lunshare.helper.lio.configfs import ISCSI, names, read

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# ESTABLISHED, and CLOSE_WAIT: the host has closed it, and the kernel not yet.
_STATES = ("01", "08")
_THREAD = "iscsi_trx"


def may_exist() -> bool:
    """Whether a host may have begun a login at any target of the node.

    Its connection is there. Each connection that has logged in has a thread of the
    kernel, which starts with that (iscsi_target_nego.c). The number of sessions
    does not tell: a dead session has no connection, and would hide a begun login.
    """
    paths = (f"{ISCSI}/{name}" for name in names(ISCSI))
    portals = (portal for path in paths for portal in _portals(path))
    ports = {int(portal.rpartition(":")[2]) for portal in portals}
    count = sum(port in ports for port in _open_ports())
    return count > 0 and count > _logged_in()


def _logged_in() -> int:
    """Return how many connections have logged in, also those of discovery sessions."""
    count = 0
    for process in filter(str.isdigit, names("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            count += read(f"/proc/{process}/comm") == _THREAD
    return count


def _portals(target: str) -> Iterator[str]:
    for group in names(target):
        yield from names(f"{target}/{group}/np")


def _open_ports() -> Iterator[int]:
    """Yield the node's port of each connection. Their form: proc(5), net/tcp."""
    for table in filter(os.path.exists, _TABLES):
        with open(table, encoding="ascii") as lines:
            for words in map(str.split, lines):
                if words[3] in _STATES:
                    yield int(words[1].rpartition(":")[2], 16)
