# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What of this node the helper serves: a file that root owns says so.

The daemon may have been taken over, so none of this is the daemon's to say. Every
verb and every filter of rootwrap.d is checked against it. It is read once, at the
helper's start; no check reads a file or starts a process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lunshare.drivers.errors import HelperRefused, TargetFailed
from lunshare.drivers.values import Disk, DiskKind

#: Where it is read from, unless --config names another file.
PATH = "/etc/lunshare/helper.conf"

#: Where shares are mounted, unless the file says otherwise.
BASE = "/run/lunshare/mnt"

#: A share's directory below the base: lunshare.drivers.share_options.Share.digest.
POINT = "[0-9a-f]{32}"

_NAME = "[A-Za-z0-9_+.-]"
_MAPPED_NAME = "(?:[A-Za-z0-9_+.]|--)"  # device-mapper doubles a name's hyphens
_FOREIGN = f"[A-Za-z0-9_+.]{_NAME}*"  # of logical volumes
_GROUP = f"[A-Za-z0-9_+]{_NAME}*"
_NOTHING = "(?!)"


class NotServed(TargetFailed):
    """The disk is none that this node's root lets the helper touch."""


@dataclass(frozen=True, slots=True)
class Served:
    """Volume groups, shares, directories and target names; the default serves none.

    A group's name may end in ``*``, which stands for all that begin so. A share is
    ``HOST:/PATH``, and what is below it. ``directories`` are those in which drivers
    from elsewhere keep volumes that are files. ``manage`` is whether somebody else's
    disk in these groups and shares may become a volume.
    """

    prefix: str = ""
    groups: tuple[str, ...] = ()
    base: str = BASE
    shares: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    manage: bool = False

    def group(self, name: str) -> bool:
        """Whether a volume group is served."""
        return any(_covers(each, name) for each in self.groups)

    def point(self, point: str) -> str:
        """The mount point of a share, if it is one below the base.

        :raises HelperRefused: it is another directory.
        """
        above, name = os.path.split(point)
        if above != self.base or not re.fullmatch(POINT, name):
            raise _refused(point, f"shares are mounted below {self.base}")
        return point

    def disk(self, disk: Disk) -> Disk:
        """The disk, if its path is one that is served.

        :raises NotServed: it is another group's, or in another directory.
        """
        if disk.kind is DiskKind.BLOCK:
            self._need_group(disk)
        else:
            self._need_directory(disk)
        return disk

    def pattern(self, pattern: str) -> str:
        """An expression of a filter, with what is served for its words in ``@``."""
        for word, expression in self._words().items():
            pattern = pattern.replace(word, expression)
        return pattern

    def _words(self) -> dict[str, str]:
        return {
            "@GROUP@": _any(_group(each) for each in self.groups),
            "@MAPPED@": _any(_mapped(each) for each in self.groups),
            "@BASE@": re.escape(self.base),
            "@SHARE@": _any(_share(each) for each in self.shares),
            "@FOREIGN@": _FOREIGN if self.manage else _NOTHING,
        }

    def _need_group(self, disk: Disk) -> None:
        name = f"volume-{disk.volume_id}"
        group = group_of(disk.path, name)
        if group is None:
            raise _foreign(disk, f"a volume's disk is /dev/GROUP/{name}")
        if not self.group(group):
            raise _foreign(disk, self._named("volume_groups", self.groups))

    def _need_directory(self, disk: Disk) -> None:
        above = os.path.dirname(disk.path)
        if any(_within(above, each) for each in self.directories):
            return
        try:
            self.point(above)
        except HelperRefused:
            named = self._named("directories", self.directories)
            why = f"it is in no share below {self.base}, and {named}"
            raise _foreign(disk, why) from None

    def _named(self, option: str, values: Iterable[str]) -> str:
        return f"{PATH} has {option} = {', '.join(values) or '(none)'}"


#: A helper that serves nothing of the node.
NOTHING = Served()


def group_of(path: str, name: str) -> str | None:
    """The volume group in the path of a logical volume of that name.

    In ``/dev/mapper`` the group's own hyphens are doubled and one parts it from the
    volume, so that no other volume's name can end in this one.
    """
    plain = re.fullmatch(f"/dev/({_GROUP})/{re.escape(name)}", path)
    if plain:
        return plain[1]
    mapped = re.fullmatch(
        f"/dev/mapper/({_MAPPED_NAME}+)-{re.escape(doubled(name))}", path
    )
    return mapped[1].replace("--", "-") if mapped else None


def doubled(name: str) -> str:
    """device-mapper joins group and volume with one hyphen and doubles their own."""
    return name.replace("-", "--")


def _covers(given: str, name: str) -> bool:
    return name.startswith(given[:-1]) if given.endswith("*") else name == given


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _any(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions) or _NOTHING})"


def _group(given: str) -> str:
    more = f"{_NAME}*" if given.endswith("*") else ""
    return re.escape(given.removesuffix("*")) + more


def _mapped(given: str) -> str:
    more = f"{_MAPPED_NAME}*" if given.endswith("*") else ""
    return re.escape(doubled(given.removesuffix("*"))) + more


def _share(given: str) -> str:
    """Its source and what is below it; a server may take ``..`` for the one above."""
    plain = r"(?!.*/\.\.?(?:/|$))"
    return plain + re.escape(given.rstrip("/")) + "(?:/[ -~]*)?"


def _foreign(disk: Disk, why: str) -> NotServed:
    return NotServed(disk.volume_id, f"disk {disk.path!r}: {why}")


def _refused(what: str, why: str) -> HelperRefused:
    return HelperRefused(what, f"{why}; root says in {PATH} what is served")
