# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The seconds since the boot of this node, and which boot that was.

CLOCK_BOOTTIME goes on while the node is suspended, and nobody can set it:
clock_gettime(2). /proc/sys/kernel/random/boot_id tells two boots apart: random(4).
"""

from __future__ import annotations

import functools
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def seconds() -> float:
    """Return the seconds since the boot, those of a suspended node too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """Return the id of this boot."""
    return _BOOT_ID.read_text("ascii").strip()
