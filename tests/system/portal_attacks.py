# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What anybody who reaches a portal can do before a login; run in another namespace.

``python -m tests.system.portal_attacks WHAT ADDRESS PORT [COUNT] [IQN INITIATOR]``
prints how many connections were opened, and holds them until its stdin is closed.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.system.raw_iscsi import RawSession

_SECONDS = 2.0


def idle(address: str, port: str, count: str = "1") -> list[socket.socket]:
    """Connections that send nothing."""
    return list(_connected(address, int(port), int(count)))


def discovery(address: str, port: str, count: str = "1") -> list[RawSession]:
    """Discovery sessions under names that no volume knows."""
    sessions = []
    for number in range(int(count)):
        with contextlib.suppress(OSError):
            name = f"iqn.1994-05.com.example:nobody{number}"
            sessions.append(RawSession(name, "", f"{address}:{port}"))
    return sessions


def reinstate(
    address: str, port: str, _: str, iqn: str, initiator: str
) -> list[RawSession]:
    """A login under the name of another host."""
    try:
        return [RawSession(initiator, iqn, f"{address}:{port}")]
    except OSError:
        return []


def _connected(address: str, port: int, count: int) -> Iterator[socket.socket]:
    for _ in range(count):
        with contextlib.suppress(OSError):
            yield socket.create_connection((address, port), _SECONDS)


if __name__ == "__main__":
    attacks: dict[str, Callable[..., list[Any]]] = {
        "idle": idle,
        "discovery": discovery,
        "reinstate": reinstate,
    }
    opened = attacks[sys.argv[1]](*sys.argv[2:])
    print(len(opened), flush=True)
    sys.stdin.read()
