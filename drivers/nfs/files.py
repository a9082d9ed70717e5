# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files of one share, by the verbs of the root helper. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivers.base import Root
from drivers.shares import Share

# A copy slower than this, or zeros written slower, are taken for hung.
_FLOOR = 10 * 1024**2

# A clone writes no data, but its server may have a list of extents to copy.
_CLONE_FLOOR = 1024**3

# The helper takes no longer ones.
_MOST_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How a backend makes its files."""

    preallocate: bool
    clone: bool
    mode: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a share; ``plain``: a regular file with one name."""

    name: str
    size: int
    plain: bool


class Files:
    """One share. Every call raises what ``drivers.helper.shares`` says."""

    def __init__(
        self, root: Root, share: Share, base: str, timeout: float, policy: Policy
    ) -> None:
        self.share, self.point = share, share.point(base)
        self._root, self._timeout, self._policy = root, timeout, policy

    def path(self, name: str) -> str:
        """Where a file is."""
        return f"{self.point}/{name}"

    def look(self) -> Mapping[str, str]:
        """What is mounted at the share's place, and what is wrong with it."""
        found: Mapping[str, str] = self._call("look")
        return found

    def room(self) -> tuple[int, int]:
        """The share's size and what is free."""
        total, free = self._call("room")
        return total, free

    def entries(self) -> list[Entry]:
        """Every file but hidden ones. One readdir of the share."""
        return [Entry(*each) for each in self._call("list")]

    def find(self, name: str) -> int | None:
        """The size of a file of ours; None when it is not there."""
        size: int | None = self._call("find", name=name)
        return size

    def make(self, name: str, size: int) -> int:
        """Make it, or grow it; its size."""
        made = self._made(name, size)
        return int(self._call("make", self._taken(size), **made))

    def grow(self, name: str, size: int) -> int:
        """Grow it, never shrink it; its size."""
        grown = {"name": name, "size": size, "preallocate": self._policy.preallocate}
        return int(self._call("grow", self._taken(size), **grown))

    def copy(
        self, source: str, name: str, size: int, held: int, replace: bool = False
    ) -> int:
        """Make it of another's ``held`` bytes and zeros up to ``size``; its size."""
        asked = {**self._made(name, size), "source": source, "replace": replace}
        if self._policy.clone:
            seconds = held / _CLONE_FLOOR + self._taken(size - held)
            made = self._call("copy", seconds, **asked, clone=True)
            if made is not None:
                return int(made)
        return int(self._call("copy", size / _FLOOR, **asked, clone=False))

    def take(self, reference: str, name: str, size: int) -> int:
        """Give somebody's file a name of ours; its size."""
        given = {"reference": reference, "name": name, "size": size}
        return int(self._call("take", **given, mode=self._policy.mode))

    def give(self, name: str) -> None:
        """Take our name from it."""
        self._call("give", name=name)

    def drop(self, name: str) -> None:
        """Remove it, and what is half-made of it."""
        self._call("drop", name=name)

    def _made(self, name: str, size: int) -> dict[str, Any]:
        policy = {"preallocate": self._policy.preallocate, "mode": self._policy.mode}
        return {"name": name, "size": size, **policy}

    def _taken(self, size: int) -> float:
        """How long it may take to make room: a server may know zeros only."""
        return max(0, size) / _FLOOR if self._policy.preallocate else 0.0

    def _call(self, verb: str, seconds: float = 0.0, /, **arguments: Any) -> Any:
        """``seconds`` is what the work may take, beside the server's answer."""
        timeout = min(self._timeout + seconds, _MOST_SECONDS)
        return self._root.call(
            f"share.{verb}", timeout=timeout, point=self.point, **arguments
        )
