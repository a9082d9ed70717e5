# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What of this node the helper serves, as helper.conf, a file of root, lists it.

An attacker may have the daemon's user, so the daemon does not decide any of this. Every
verb and every filter of rootwrap.d is checked against it. The file is read once, at
the start of the helper. No check reads a file or starts a process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lunshare.drivers.errors import HelperRefused, TargetFailed
from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Disk, DiskKind

#: The default of --config.
PATH = "/etc/lunshare/helper.conf"

#: The default of nfs_mount_point_base.
BASE = "/run/lunshare/mnt"

#: The name of a share's directory below the base (share_options.Share.digest).
POINT = "[0-9a-f]{32}"

_NAME = "[A-Za-z0-9_+.-]"
_FOREIGN = f"[A-Za-z0-9_+.]{_NAME}*"  # of logical volumes
_GROUP = f"[A-Za-z0-9_+]{_NAME}*"
_NOTHING = "(?!)"


class NotServed(TargetFailed):
    """The disk is not one that helper.conf allows the helper to touch."""


@dataclass(frozen=True, slots=True)
class Served:
    """Volume groups, shares, directories and target names; the default serves none.

    The name of a group may end in ``*``, which matches any ending. A share is
    ``HOST:/PATH``, with all directories below it. ``directories`` are those in which
    drivers of other projects store volumes as files. ``manage`` is whether a foreign
    disk in these groups and shares may become a volume. ``takeover`` is whether a
    target that Cinder's LVM driver has created for these groups may be changed.
    """

    prefix: str = ""
    groups: tuple[str, ...] = ()
    base: str = BASE
    shares: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    manage: bool = False
    takeover: bool = False

    def serves_group(self, name: str) -> bool:
        """Whether a volume group is served."""
        # Complete names first: no group's name has a "*" in it.
        return name in self.groups or any(_covers(group, name) for group in self.groups)

    def need_mount_point(self, point: str) -> str:
        """Return ``point``, if it can be the mount point of a share below the base.

        :raises HelperRefused: it is another directory.
        """
        above, name = os.path.split(point)
        if above != self.base or not re.fullmatch(POINT, name):
            raise _refused(point, f"shares are mounted below {self.base}")
        return point

    def serves_share(self, source: str) -> bool:
        """Whether what is mounted at a mount point is a share that root lists."""
        listed = _any(_share(share_) for share_ in self.shares)
        return re.fullmatch(listed, source) is not None

    def share_point(self, disk: Disk) -> str | None:
        """Return the mount point in the path of a file; None if it is elsewhere."""
        if disk.kind is not DiskKind.FILE:
            return None
        above = os.path.dirname(disk.path)
        return above if os.path.dirname(above) == self.base else None

    def need_disk(self, disk: Disk) -> Disk:
        """Return the disk, if its path is served.

        :raises NotServed: it is in another volume group or directory.
        """
        if disk.kind is DiskKind.BLOCK:
            self._need_group(disk)
        else:
            self._need_directory(disk)
        return disk

    def expand(self, pattern: str) -> str:
        """Return a filter's expression with its ``@WORD@`` placeholders filled in."""
        for word, expression in self._words().items():
            pattern = pattern.replace(word, expression)
        return pattern

    def _words(self) -> dict[str, str]:
        return {
            "@GROUP@": _any(_group(group) for group in self.groups),
            "@BASE@": re.escape(self.base),
            "@SHARE@": _any(_share(share) for share in self.shares),
            "@FOREIGN@": _FOREIGN if self.manage else _NOTHING,
        }

    def _need_group(self, disk: Disk) -> None:
        group = export_paths.group_of(disk)
        if group is None:
            raise _foreign(disk, export_paths.path_problem(disk))
        if not self.serves_group(group):
            raise _foreign(disk, self._named("volume_groups", self.groups))

    def _need_directory(self, disk: Disk) -> None:
        above = os.path.dirname(disk.path)
        if any(_within(above, directory) for directory in self.directories):
            return
        try:
            self.need_mount_point(above)
        except HelperRefused:
            named = self._named("directories", self.directories)
            why = f"it is not in a share below {self.base}, and {named}"
            raise _foreign(disk, why) from None

    def _named(self, option: str, values: Iterable[str]) -> str:
        return f"{PATH} has {option} = {', '.join(values) or '(none)'}"


#: A helper that serves nothing of the node.
NOTHING = Served()


def _covers(given: str, name: str) -> bool:
    return name.startswith(given[:-1]) if given.endswith("*") else name == given


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _any(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions) or _NOTHING})"


def _group(given: str) -> str:
    more = f"{_NAME}*" if given.endswith("*") else ""
    return re.escape(given.removesuffix("*")) + more


def _share(given: str) -> str:
    """The source and all below it, without ``..``, which a server may resolve."""
    plain = r"(?!.*/\.\.?(?:/|$))"
    return plain + re.escape(given.rstrip("/")) + "(?:/[ -~]*)?"


def _foreign(disk: Disk, why: str) -> NotServed:
    return NotServed(disk.volume_id, f"disk {disk.path!r}: {why}")


def _refused(what: str, why: str) -> HelperRefused:
    return HelperRefused(what, f"{why}; root lists in {PATH} what is served")
