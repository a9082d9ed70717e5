# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Report the state of a unit to systemd: sd_notify(3), for daemon and helper."""

from __future__ import annotations

import contextlib
import os
import socket
from array import array
from collections.abc import Sequence


def notify(*lines: str, descriptors: Sequence[int] = ()) -> None:
    """Send lines such as READY=1 to systemd. Outside a Type=notify unit do nothing.

    ``descriptors``: what FDSTORE=1 or BARRIER=1 is about.

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
        # Not socket.send_fds(): in Python 3.11 it ignores the address.
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
        client.sendmsg(["\n".join(lines).encode()], [rights], 0, address)
