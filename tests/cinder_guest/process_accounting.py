# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which processes end meanwhile: the kernel's process accounting, acct(5).

User-mode Linux has no process connector. Threads have no record of their own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SIZE, _NAME = 64, slice(36, 53)
_KERNEL = ("kworker", "iscsi_", "(udev-worker)", "systemd-udevd")


@contextmanager
def ended_processes(directory: Path) -> Iterator[list[str]]:
    """The names of the processes that end in the block; complete after it.

    Those of the kernel and of udev, which only become idle, are left out.
    """
    file, found = directory / "accounting", list[str]()
    file.write_bytes(b"")
    _account(str(file).encode())
    try:
        yield found
    finally:
        _account(None)
    # The end of the accounting writes a record of its caller (acct_pin_kill, 6.12).
    records = file.read_bytes()[:-_SIZE]
    for start in range(0, len(records), _SIZE):
        name = records[start : start + _SIZE][_NAME].split(b"\0")[0].decode()
        if not name.startswith(_KERNEL):
            found.append(name)


def _account(path: bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.acct(path):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
