# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Report the state of a unit to systemd: sd_notify(3), for daemon and helper."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send lines such as READY=1 to systemd. Outside a Type=notify unit do nothing.

    An error is ignored: a unit whose state is unknown still serves.
    """
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    # A leading @ names a socket in the abstract namespace.
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client,
    ):
        client.sendto("\n".join(lines).encode(), address)
