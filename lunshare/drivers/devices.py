# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Device nodes, their sizes, and what udev knows and reports of them. Read-only."""

from __future__ import annotations

import functools
import os
import selectors
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyudev

from lunshare.drivers.errors import DeadlineExceeded

# The kernel counts a block device in units of 512 bytes whatever its sectors
# are (Documentation/ABI/stable/sysfs-block, /sys/block/<disk>/size).
_SECTOR = 512

#: A device of udev's database. pyudev has no types.
Device = Any


def block_size(path: str) -> int:
    """Return the size in bytes of the block device at ``path``; needs no privilege.

    :raises FileNotFoundError: ``path`` does not exist or is not a block device.
    """
    number = _device_number(path)
    size = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/size")
    return int(size.read_text("ascii")) * _SECTOR


def sector_size(path: str) -> int:
    """Return the logical sector size in bytes of the block device at ``path``.

    :raises FileNotFoundError: ``path`` does not exist or is not a block device.
    """
    number = _device_number(path)
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (device / "partition").exists():  # its disk has the queue
        device = device.parent
    return int((device / "queue/logical_block_size").read_text("ascii"))


def drop_cache(path: str) -> None:
    """Let the next read of a block device come from its medium."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def at_path(path: str) -> Device:
    """Return the block device at ``path``.

    :raises FileNotFoundError: ``path`` does not exist or is not a block device.
    """
    number = _device_number(path)
    try:
        return pyudev.Devices.from_device_number(context(), "block", number)
    except pyudev.DeviceNotFoundError as error:  # it was removed meanwhile
        raise FileNotFoundError(f"{path} is not a block device any more") from error


def _device_number(path: str) -> int:
    status = os.stat(path)
    if not stat.S_ISBLK(status.st_mode):
        raise FileNotFoundError(f"{path} is not a block device")
    return status.st_rdev


@functools.cache
def context() -> Any:
    """Return the access to udev's database.

    One for the process: pyudev starts ldconfig to find its library for each new one.
    """
    return pyudev.Context()


def directory_changed(path: str) -> int:
    """Return the mtime of the directory in ns; 0 if it does not exist.

    It changes when an entry is added or removed.
    """
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


class BlockEvents:
    """The events of block devices from now on, each after udev's rules for it are done.

    Needs no privilege. Of one thread.
    """

    def __init__(self) -> None:
        self._monitor = pyudev.Monitor.from_netlink(context())
        self._monitor.filter_by("block")
        self._monitor.start()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._monitor.fileno(), selectors.EVENT_READ)

    def __enter__(self) -> BlockEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def wait(
        self, seconds: float, concerns: Callable[[Device], bool] = lambda _: True
    ) -> bool:
        """Wait for the next event that ``concerns`` the caller.

        :return: False if there was none within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if not self._selector.select(remaining):
                continue
            try:
                device = self._received()
            except OSError:  # ENOBUFS: events were lost, and any may be among them
                return True
            if device is not None and concerns(device):
                return True
        return False

    def _received(self) -> Device | None:
        """Return the device of an event that has arrived, or None."""
        # Not Monitor.poll: it needs select.poll, which eventlet removes from a process
        # such as cinder-volume.
        return self._monitor._receive_device()


def wait_for_path(path: str, seconds: float) -> None:
    """Return as soon as ``path`` exists. It is checked at each event of udev.

    :raises DeadlineExceeded: it did not appear within ``seconds``.
    """
    if Path(path).exists():
        return
    deadline = time.monotonic() + seconds
    with BlockEvents() as events:
        # The events began before this check, so none is missed between them.
        while not Path(path).exists():
            if not events.wait(deadline - time.monotonic()):
                what = f"the appearance of disk {path.lstrip('/')}"
                raise DeadlineExceeded(what, seconds)
