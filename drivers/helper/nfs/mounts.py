# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which shares are mounted, how to get into one, and what room there is.

Nothing of a path is taken on trust: the directory is opened without following
a link, and has to be on the device of an NFS mount that is mounted there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_KINDS = ("nfs", "nfs4")
_LOCAL = ("nolock", "local_lock=all", "local_lock=posix", "local_lock=flock")
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the kernel's table: where, of which device and kind, what.

    ``options`` are the file system's own, as the kernel has them.
    """

    point: str
    device: int
    kind: str
    source: str
    options: str = ""

    @property
    def hides_locks(self) -> bool:
        """Whether it does not tell what other hosts have locked (nfs(5))."""
        given = self.options.split(",")
        return any(each in given for each in _LOCAL)


@dataclass(frozen=True, slots=True)
class Room:
    """The size of a filesystem and what is free in it, in bytes."""

    total: int
    free: int


class Mounts:
    """The kernel's view. Tests stand a plain directory in for a share."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._table = table

    def table(self) -> Iterable[Mount]:
        """Every NFS mount of the node; the topmost of one point comes last."""
        # Bytes: a mount point or a server's path need not be UTF-8.
        with open(self._table, "rb") as lines:
            for line in lines:
                mount = of_line(line)
                if mount.kind in _KINDS:
                    yield mount

    def room(self, share: int) -> Room:
        """How much room the share at this descriptor has."""
        found = os.fstatvfs(share)
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def find(self, point: str) -> Mount | None:
        """The share that is mounted there. Asks the kernel only, no server."""
        found = [mount for mount in self.table() if mount.point == point]
        return found[-1] if found else None

    @contextlib.contextmanager
    def entered(self, mount: Mount) -> Iterator[int]:
        """A descriptor of the share's directory.

        :raises OSError: ESTALE, for one; or it is not what the table says.
        """
        share = directory(mount.point)
        try:
            if os.fstat(share).st_dev != mount.device:
                raise FileNotFoundError(2, "another filesystem is there", mount.point)
            yield share
        finally:
            os.close(share)


#: This node's own.
KERNEL = Mounts()


def directory(path: str) -> int:
    """Open an absolute path's directory, following no link on the way.

    :raises OSError: it is not there, or a part of it is a link or no directory.
    """
    if os.path.normpath(path) != path or not path.startswith("/"):
        raise NotADirectoryError(20, "the path is not plain and absolute", path)
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open("/", flags | os.O_PATH)
    parts = [part for part in path.split("/") if part]
    try:
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            there = os.open(part, flags | (0 if last else os.O_PATH), dir_fd=here)
            os.close(here)
            here = there
    except BaseException:
        os.close(here)
        raise
    return here


def of_line(line: bytes) -> Mount:
    """Read a line as proc(5) has it: fields, tags, a hyphen, kind and source."""
    before, _, after = line.partition(b" - ")
    fields, (kind, source, *more) = before.split(b" "), after.split(b" ")
    major, minor = fields[2].split(b":")
    device = os.makedev(int(major), int(minor))
    shown = _plain(source).decode(errors="replace")  # it is said in answers
    given = b" ".join(more).strip().decode(errors="replace")
    return Mount(os.fsdecode(_plain(fields[4])), device, kind.decode(), shown, given)


def _plain(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda octal: bytes([int(octal[1], 8)]), text)
