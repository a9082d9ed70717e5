# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume groups for the daemons that tests start: one group, one lunshared.

Each has a thin pool on a loop device. The next test reuses a released group:
creating one takes seconds on an emulated processor.
"""

from __future__ import annotations

import os
import tempfile
import uuid

from tests.system.units import run

_SIZE, _POOL = 4 * 1024**3, "2g"

# By process: a group that a forked process acquires is not its parent's.
_free: dict[int, list[str]] = {}
_loops: dict[tuple[int, str], str] = {}


def acquire() -> str:
    """The name of a volume group that no other daemon uses."""
    free = _free.setdefault(os.getpid(), [])
    return free.pop() if free else _make()


def release(group: str) -> None:
    """Return a volume group for reuse."""
    _free[os.getpid()].append(group)


def remove_all() -> None:
    """Remove the released groups that this process created."""
    for group in _free.pop(os.getpid(), []):
        run("vgremove", "-qq", "--force", "--yes", group)
        run("losetup", "--detach", _loops.pop((os.getpid(), group)))


def _make() -> str:
    group = f"lunshare-{uuid.uuid4().hex[:8]}"
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as store:
        store.truncate(_SIZE)
        loop = run("losetup", "--find", "--show", store.name).strip()
    # Debian's 69-lvm.rules would activate it seconds after its disk appears.
    run("vgcreate", "-qq", "--setautoactivation", "n", group, loop)
    pool = ("--type", "thin-pool", "-L", _POOL, "-n", f"{group}-pool")
    run("lvcreate", "-qq", *pool, group)
    _loops[os.getpid(), group] = loop
    return group
