# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The names of a share's files, and when a share counts as full."""

from __future__ import annotations

import re

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(f"(volume|_snapshot)-({_UUID})")
_FOREIGN = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,254}")

#: What a file is called until it is whole.
NEW = ".new"

#: What a volume's file is called when it was given away.
GIVEN = "unmanaged-"

# A pool with less free than this part of it, or than so many bytes, takes nothing
# new: as in a thin pool of LVM, what is written to its volumes needs some room.
_NEARLY_FULL = 0.02
_ENOUGH = 10 * 1024**3


def ours(name: str) -> bool:
    """Whether it is a volume's or a snapshot's, whole."""
    return _OURS.fullmatch(name) is not None


def foreign(name: str) -> bool:
    """Whether it may be somebody else's disk: a plain name, and none of ours."""
    return _FOREIGN.fullmatch(name) is not None and not ours(name.removesuffix(NEW))


def given(name: str) -> bool:
    """Whether it is what a volume of ours is called that was given away."""
    return name.startswith(GIVEN) and ours(name.removeprefix(GIVEN))


def identity(name: str) -> str:
    """The id in a name of ours."""
    found = _OURS.fullmatch(name)
    return found[2] if found else ""


def nearly_full(total: int, free: int) -> bool:
    """Whether a pool of that size takes nothing new."""
    return free < min(total * _NEARLY_FULL, _ENOUGH)
