# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume groups for the daemons that tests start: one lunshared works with a group.

Each is a thin pool on a loop device. One that a test is done with is taken by the
next: making one takes seconds where the processor is emulated.
"""

from __future__ import annotations

import os
import tempfile
import uuid

from tests.system.units import run

_SIZE, _POOL = 4 * 1024**3, "2g"

# By process: what a forked one takes is not its parent's.
_free: dict[int, list[str]] = {}
_loops: dict[tuple[int, str], str] = {}


def take() -> str:
    """The name of a volume group that nobody works with."""
    free = _free.setdefault(os.getpid(), [])
    return free.pop() if free else _make()


def give_back(group: str) -> None:
    """The test is done with it."""
    _free[os.getpid()].append(group)


def remove_all() -> None:
    """Remove those that this process made and that were given back."""
    for group in _free.pop(os.getpid(), []):
        run("vgremove", "-qq", "--force", "--yes", group)
        run("losetup", "--detach", _loops.pop((os.getpid(), group)))


def _make() -> str:
    group = f"lunshare-{uuid.uuid4().hex[:8]}"
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as store:
        store.truncate(_SIZE)
        loop = run("losetup", "--find", "--show", store.name).strip()
    # Debian's 69-lvm.rules would activate it seconds after its disk appeared.
    run("vgcreate", "-qq", "--setautoactivation", "n", group, loop)
    pool = ("--type", "thin-pool", "-L", _POOL, "-n", f"{group}-pool")
    run("lvcreate", "-qq", *pool, group)
    _loops[os.getpid(), group] = loop
    return group
