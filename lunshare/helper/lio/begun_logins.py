# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logins that have begun and not ended. The kernel does not show them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lunshare.helper.lio.configfs import ISCSI, names, read_or_empty

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# ESTABLISHED, and CLOSE_WAIT: the host has closed it, and the kernel not yet.
_STATES = ("01", "08")


def may_exist() -> bool:
    """Whether a host may have begun a login at any target of the node.

    Its connection is there: each session has one (MaxConnections is 1), or none where
    it is dead, so there are more connections than sessions.
    """
    count = "fabric_statistics/iscsi_instance/sessions"
    paths = (f"{ISCSI}/{name}" for name in names(ISCSI))
    targets = [path for path in paths if os.path.isdir(path)]
    portals = (portal for target in targets for portal in _portals(target))
    ports = {int(portal.rpartition(":")[2]) for portal in portals}
    sessions = sum(int(read_or_empty(f"{path}/{count}") or 0) for path in targets)
    return sum(port in ports for port in _open_ports()) > sessions


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
