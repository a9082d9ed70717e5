# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which failed LVM command found no space.

LVM exits with code 5 on every error, so its message must be matched: that of lvm2
2.03.16 in the C locale, which the helper sets. So the client gets one error for no
space, as it does from the verbs on bytes and on shares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lunshare.drivers.errors import CommandFailed, DriverError, NoSpace
from lunshare.helper.lvm import changes

_ALLOCATING = frozenset(("lvcreate", "lvextend"))
_NO_SPACE = re.compile(
    "insufficient free space|insufficient suitable|reached threshold"
    "|out of (data|metadata) space",
    re.IGNORECASE,
)
# What exists already needs no space: its command may warn of the pool, too.
_DONE_BEFORE = re.compile("already exists|existing size", re.IGNORECASE)


def failure(argv: Sequence[str], code: int, stderr: str) -> DriverError:
    """Return NoSpace if the group has too few free extents or the pool is full.

    Else CommandFailed.
    """
    full = argv[0] in _ALLOCATING and _NO_SPACE.search(stderr)
    if full and not _DONE_BEFORE.search(stderr):
        return NoSpace(changes.volume_group(argv), stderr.strip())
    return CommandFailed(tuple(argv), code, stderr)
