# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files of one share, by the verbs of the root helper. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.base import Root
from lunshare.drivers.share_options import Share


@dataclass(frozen=True, slots=True)
class Policy:
    """How a backend makes its files."""

    preallocate: bool
    clone: bool
    mode: str
    #: Seconds in which work on bytes may come no further.
    patience: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a share; ``plain``: a regular file with one name."""

    name: str
    size: int
    plain: bool


class Files:
    """One share. Every call raises what ``helper/nfs/share_verbs`` says."""

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
        return int(self._call("make", self._reserves(), **made))

    def grow(self, name: str, size: int) -> int:
        """Grow it, never shrink it; its size."""
        grown: dict[str, Any] = {
            "name": name,
            "size": size,
            "preallocate": self._policy.preallocate,
        }
        return int(self._call("grow", self._reserves(), **grown))

    def copy(self, source: str, name: str, size: int, replace: bool = False) -> int:
        """Make it of another's bytes and zeros up to ``size``; its size."""
        asked: dict[str, Any] = {"source": source, "replace": replace}
        asked |= self._made(name, size)
        if self._policy.clone:
            made = self._call("copy", self._reserves(), **asked, clone=True)
            if made is not None:
                return int(made)
        return int(self._call("copy", self._policy.patience, **asked, clone=False))

    def take(self, reference: str, name: str, size: int) -> int:
        """Give somebody's file a name of ours; its size."""
        given: dict[str, Any] = {"reference": reference, "name": name, "size": size}
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

    def _reserves(self) -> float:
        """Seconds without progress: a server may take room by zeros only."""
        return self._policy.patience if self._policy.preallocate else self._timeout

    def _call(self, verb: str, seconds: float | None = None, **arguments: Any) -> Any:
        """A verb on bytes has its seconds again after each step."""
        timeout = self._timeout if seconds is None else seconds
        return self._root.call(
            f"share.{verb}", timeout=timeout, point=self.point, **arguments
        )
