# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A disk of device-mapper on a loop device that can lose or fail its reads and writes.

It is behind the first MiB, so that nobody finds its label on the loop device too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from tests.system.lio_node import run

START = 2048  # sectors

#: "error" fails reads and writes; the others are features of dm-flakey in the kernel.
Trouble = Literal["error", "error_writes", "drop_writes"]


def table(loop: str, trouble: Trouble | None = None) -> str:
    """The device-mapper table of the disk."""
    sectors = int(run("blockdev", "--getsz", loop)) - START
    if trouble == "error":
        return f"0 {sectors} error"
    if trouble:
        return f"0 {sectors} flakey {loop} {START} 0 3600 1 {trouble}"
    return f"0 {sectors} linear {loop} {START}"


@contextlib.contextmanager
def broken(name: str, loop: str, trouble: Trouble) -> Iterator[None]:
    """Inside the block the disk ``name`` has this trouble."""
    _replace(name, table(loop, trouble))
    try:
        yield
    finally:
        _replace(name, table(loop))


def _replace(name: str, new: str) -> None:
    # With --noflush, because a flush would write what is to be lost.
    run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
    run("dmsetup", "load", name, "--table", new)
    run("dmsetup", "resume", name)
