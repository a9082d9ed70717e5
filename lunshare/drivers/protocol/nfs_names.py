# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The names of a share's files, and when a share counts as full."""

from __future__ import annotations

import re

from lunshare.drivers.values import UUID

_OURS = re.compile(f"(volume|_snapshot)-({UUID})")
_FOREIGN = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,254}")

#: The suffix of a file until it is complete.
NEW = ".new"

#: The prefix of a volume's file after it was unmanaged.
UNMANAGED = "unmanaged-"

# A pool with less free space than this fraction, or than so many bytes, accepts no new
# volume: as in a thin pool of LVM, writes to existing volumes need space.
_NEARLY_FULL = 0.02
_ENOUGH = 10 * 1024**3


def is_managed(name: str) -> bool:
    """Whether it is the name of a complete volume or snapshot of lunshare."""
    return _OURS.fullmatch(name) is not None


def is_foreign(name: str) -> bool:
    """Whether it may be a foreign disk: a plain name, and not one of lunshare's."""
    return _FOREIGN.fullmatch(name) is not None and not is_managed(
        name.removesuffix(NEW)
    )


def is_unmanaged(name: str) -> bool:
    """Whether it is the name of a volume that was unmanaged."""
    return name.startswith(UNMANAGED) and is_managed(name.removeprefix(UNMANAGED))


def id_of(name: str) -> str:
    """Return the id in a managed name; empty if it is not one."""
    match = _OURS.fullmatch(name)
    return match[2] if match else ""


def nearly_full(total: int, free: int) -> bool:
    """Whether a pool of that size, in bytes, accepts no new volume."""
    return free < min(total * _NEARLY_FULL, _ENOUGH)
