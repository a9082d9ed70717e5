# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Device nodes and their sizes. Read-only."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from pathlib import Path

from lunshare.drivers.errors import DeadlineExceeded

# The kernel counts a block device in units of 512 bytes whatever its sectors
# are (Documentation/ABI/stable/sysfs-block, /sys/block/<disk>/size).
_SECTOR = 512

# The kernel's protocol of device events (linux/netlink.h, NETLINK_KOBJECT_UEVENT), and
# the group in which udev repeats each one after its rules are done (libudev-monitor.c,
# UDEV_MONITOR_UDEV). No privilege is needed.
_UEVENT, _AFTER_RULES = 15, 2


def block_size(path: str) -> int:
    """Return the size in bytes of the block device at ``path``; needs no privilege.

    :raises FileNotFoundError: ``path`` does not exist or is not a block device.
    """
    found = os.stat(path)
    if not stat.S_ISBLK(found.st_mode):
        raise FileNotFoundError(f"{path} is not a block device")
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    sectors = Path(f"/sys/dev/block/{major}:{minor}/size").read_text("ascii")
    return int(sectors) * _SECTOR


def directory_changed(path: str) -> int:
    """Return the mtime of the directory in ns; 0 if it does not exist.

    It changes when an entry is added or removed.
    """
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for_path(path: str, seconds: float) -> None:
    """Return as soon as ``path`` exists. It is checked at each event of udev.

    The socket has a timeout of Python's own, because a library that calls poll(2)
    fails in a process where eventlet has removed it, such as cinder-volume.

    :raises DeadlineExceeded: it did not appear within ``seconds``.
    """
    if Path(path).exists():
        return
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _UEVENT) as events:
        events.bind((0, _AFTER_RULES))
        deadline = time.monotonic() + seconds
        # The socket was bound before this check, so no event is missed between them.
        while not Path(path).exists():
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"the appearance of {path}", seconds)
            events.settimeout(left)
            # An event that was lost (ENOBUFS) is an event too.
            with contextlib.suppress(OSError):
                events.recv(1)
