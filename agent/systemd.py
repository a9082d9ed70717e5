# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tell systemd how we are: sd_notify(3), the few lines of it that we need."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send lines such as READY=1; does nothing outside a Type=notify unit.

    Nor when nobody listens any more: that is no reason for us to end otherwise.
    """
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier,
    ):
        notifier.sendto("\n".join(lines).encode(), address)
