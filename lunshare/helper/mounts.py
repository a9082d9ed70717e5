# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The mounted NFS shares: find one, open its directory, read its free space.

A path is not trusted: the directory is opened without following links, and has to be
on the device of the NFS mount that the kernel lists there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lunshare.drivers.errors import HelperRefused
from lunshare.drivers.values import Disk
from lunshare.helper.served import PATH, Served

_KINDS = ("nfs", "nfs4")
_LOCAL = ("nolock", "local_lock=all", "local_lock=posix", "local_lock=flock")
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the kernel's mount table.

    ``options`` are those of the file system, as the kernel shows them.
    """

    point: str
    device: int
    kind: str
    source: str
    options: str = ""

    @property
    def hides_locks(self) -> bool:
        """Whether locks of other hosts are not visible on it (nfs(5))."""
        words = self.options.split(",")
        return any(word in words for word in _LOCAL)


@dataclass(frozen=True, slots=True)
class Space:
    """The size of a filesystem and what is free in it, in bytes."""

    total: int
    free: int


class Mounts:
    """The kernel's mount table. Tests replace it, with plain directories as shares."""

    # Not psutil.disk_partitions: it leaves out the numbers of the device, by which an
    # opened directory is known to be the share's, and the root of a bind mount.
    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._table = table

    def table(self) -> Iterable[Mount]:
        """Yield every NFS mount of the node; the topmost one of a point comes last."""
        # Bytes: a mount point, a server's path, or the subtype that a user gives a FUSE
        # mount need not be UTF-8.
        with open(self._table, "rb") as lines:
            for line in lines:
                mount = parse_line(line)
                if mount.kind in _KINDS:
                    yield mount

    def space(self, share: int) -> Space:
        """Return the size and the free space of the share at this descriptor."""
        status = os.fstatvfs(share)
        return Space(
            status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        )

    def trusts_holes(self, file: int) -> bool:
        """Whether what the file system of an open file calls a hole has no bytes.

        Not on a share: its server is trusted with nothing. OpenZFS called data a hole
        in 2023.
        """
        device = os.fstat(file).st_dev
        return all(mount.device != device for mount in self.table())

    def find(self, point: str) -> Mount | None:
        """Return the share mounted at ``point``, or None. No server is contacted."""
        mounts = [mount for mount in self.table() if mount.point == point]
        return mounts[-1] if mounts else None

    @contextlib.contextmanager
    def enter(self, mount: Mount) -> Iterator[int]:
        """Open the share's directory, and yield its descriptor.

        :raises OSError: for example ESTALE; or another file system is mounted there.
        """
        share = open_directory(mount.point)
        try:
            if os.fstat(share).st_dev != mount.device:
                raise FileNotFoundError(2, "another filesystem is there", mount.point)
            yield share
        finally:
            os.close(share)


def need_listed(mount: Mount, served: Served) -> None:
    """Check the source as well: it may be mounted since root listed it.

    :raises HelperRefused: it is not in helper.conf.
    """
    if not served.serves_share(mount.source):
        why = f"{PATH} does not have it in nfs_shares: add it there, or umount it"
        raise HelperRefused(f"share {mount.source} at {mount.point}", why)


def need_served_disk(disk: Disk, served: Served, mounts: Mounts) -> Disk:
    """Return the disk, if its path is served, and the share in it.

    :raises NotServed: its path is not.
    :raises HelperRefused: see ``need_listed``.
    """
    point = served.share_point(served.need_disk(disk))
    if point and (mount := mounts.find(point)):
        need_listed(mount, served)
    return disk


#: The mounts of this node.
KERNEL = Mounts()


def open_directory(path: str) -> int:
    """Open the directory at an absolute path, without following links.

    :raises OSError: it does not exist, or a part of it is not a directory.
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


def parse_line(line: bytes) -> Mount:
    """Parse a line of mountinfo (proc(5)): fields, tags, a hyphen, kind, source."""
    before, _, after = line.partition(b" - ")
    fields, (kind, source, *more) = before.split(b" "), after.split(b" ")
    major, minor = fields[2].split(b":")
    device = os.makedev(int(major), int(minor))
    shown = _unescape(source).decode(errors="replace")  # answers show it
    options = b" ".join(more).strip().decode(errors="replace")
    point = os.fsdecode(_unescape(fields[4]))
    return Mount(point, device, os.fsdecode(kind), shown, options)


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda octal: bytes([int(octal[1], 8)]), text)
