# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files of one share, by verbs of the root helper. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.base import Root
from lunshare.drivers.errors import StorageLost
from lunshare.drivers.share_options import Share


@dataclass(frozen=True, slots=True)
class FilePolicy:
    """How a backend creates its files.

    ``mode`` is octal, such as ``0600``. ``progress_timeout`` is the seconds without
    progress after which a copy or an allocation fails.
    """

    preallocate: bool
    clone: bool
    mode: str
    progress_timeout: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a share; ``plain``: it is a regular file with one name."""

    name: str
    size: int
    plain: bool


class ShareFiles:
    """The files of one share. See ``helper/nfs/share_verbs`` for what calls raise."""

    def __init__(
        self, root: Root, share: Share, base: str, timeout: float, policy: FilePolicy
    ) -> None:
        self.share, self.point = share, share.point(base)
        #: Why nothing of it can be used, if the last check found it lost.
        self.lost: StorageLost | None = None
        self._root, self._timeout, self._policy = root, timeout, policy

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return f"{self.point}/{name}"

    def mount_state(self) -> Mapping[str, str]:
        """Return what is mounted at the share's mount point, and its problem.

        Keys: ``source`` (empty if nothing is mounted), ``trouble`` (empty if it can be
        used) and ``remedy``.
        """
        state: Mapping[str, str] = self._call("check")
        return state

    def capacity(self) -> tuple[int, int]:
        """Return the size of the share, and its free space."""
        space = self._call("capacity")
        return space["total"], space["free"]

    def entries(self) -> list[Entry]:
        """Return every file that is not hidden. Cost: one readdir of the share."""
        return [Entry(**fields) for fields in self._call("list")]

    def find(self, name: str) -> int | None:
        """Return the size of a volume's or snapshot's file; None if there is none."""
        size: int | None = self._call("find", name=name)
        return size

    def create(self, name: str, size: int) -> int:
        """Create it, or extend it to ``size``; return its size."""
        fields = self._new_file(name, size)
        return int(self._call("create", self._allocation_timeout(), **fields))

    def extend(self, name: str, size: int) -> int:
        """Extend it to ``size``; it never shrinks. Return its size."""
        fields: dict[str, Any] = {
            "name": name,
            "size": size,
            "preallocate": self._policy.preallocate,
        }
        return int(self._call("extend", self._allocation_timeout(), **fields))

    def copy(self, source: str, name: str, size: int, replace: bool = False) -> int:
        """Create it with the bytes of ``source``, and zeros up to ``size``.

        With ``replace``, a file of that name is replaced. The server clones the
        file if it can; else the helper copies the bytes. Returns its size.
        """
        fields: dict[str, Any] = {"source": source, "replace": replace}
        fields |= self._new_file(name, size)
        if self._policy.clone:
            cloned = self._call(
                "copy", self._allocation_timeout(), **fields, clone=True
            )
            if cloned is not None:
                return int(cloned)
        return int(
            self._call("copy", self._policy.progress_timeout, **fields, clone=False)
        )

    def manage(self, reference: str, name: str, size: int) -> int:
        """Rename a foreign file to a name of lunshare; return its size."""
        fields: dict[str, Any] = {"reference": reference, "name": name, "size": size}
        return int(self._call("manage", **fields, mode=self._policy.mode))

    def unmanage(self, name: str) -> None:
        """Rename a volume's file to a foreign name."""
        self._call("unmanage", name=name)

    def delete(self, name: str) -> None:
        """Delete it, and its incomplete ``.new`` file. Neither need exist."""
        self._call("delete", name=name)

    def _new_file(self, name: str, size: int) -> dict[str, Any]:
        policy = {"preallocate": self._policy.preallocate, "mode": self._policy.mode}
        return {"name": name, "size": size, **policy}

    def _allocation_timeout(self) -> float:
        """Seconds without progress: some servers can allocate only by writing zeros."""
        policy = self._policy
        return policy.progress_timeout if policy.preallocate else self._timeout

    def _call(self, verb: str, seconds: float | None = None, **arguments: Any) -> Any:
        """Call a verb. If it works on bytes, ``seconds`` restart at each step.

        :raises StorageLost: at once, for anything but the check of a lost share.
        """
        if (lost := self.lost) and verb != "check":
            raise StorageLost(lost.what, lost.remedy)
        timeout = self._timeout if seconds is None else seconds
        return self._root.call(
            f"share.{verb}", timeout=timeout, point=self.point, **arguments
        )
