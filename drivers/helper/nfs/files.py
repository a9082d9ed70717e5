# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is done to the files of one share, each step such that a kill is no harm.

A file is made under ``<name>.new``, filled, flushed, and gets its name last. What
a killed one left is removed by the next that makes or drops that name. A copy gets its
name when it has been read back and is its source's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.errors import (
    CopyDiffers,
    DeadlineExceeded,
    DiskBusy,
    DriverError,
    NoSpace,
    UnknownReference,
)
from lunshare.drivers.helper.data import verification
from lunshare.drivers.helper.data.progress import Clock
from lunshare.drivers.helper.nfs import contents, open_files
from lunshare.drivers.helper.nfs.mounts import Mount, Mounts
from lunshare.drivers.helper.nfs.share_requests import Copied, Made, Place, Taken
from lunshare.drivers.protocol import nfs_names
from lunshare.drivers.protocol.nfs_names import GIVEN, NEW

#: Names that a share may have. A server may send them without an end.
MAX_FILES = 100_000

# Hosts see blocks of 512 bytes, and page caches 4096.
_UNIT = 4096

# Between two questions to a share whose server works on one request for long.
_ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Share:
    """An open share, and the time that is left for what is done in it."""

    directory: int
    mount: Mount
    mounts: Mounts
    clock: Clock

    def need(self, more: int, preallocate: bool) -> None:
        """:raises NoSpace: so many further bytes should not be begun."""
        room = self.mounts.room(self.directory)
        if nfs_names.nearly_full(room.total, room.free):
            raise NoSpace(self.mount.source, f"only {room.free} bytes are free")
        if preallocate and more > room.free:
            why = f"{more} bytes are wanted and {room.free} are free"
            raise NoSpace(self.mount.source, why)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """A time in which the server works on one request, such as a clone.

        Its bytes cannot be counted, so what counts is that the server answers.
        """
        ended, share = threading.Event(), os.dup(self.directory)

        def ask() -> None:
            with contextlib.suppress(OSError, DeadlineExceeded):
                while not ended.wait(_ASK_SECONDS):
                    os.fstatvfs(share)  # NFS asks the server each time
                    self.clock(0)
            os.close(share)

        threading.Thread(target=ask, name="whether it answers", daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def room(share: Share, _asked: Place) -> list[int]:
    """The share's size and what is free, in bytes."""
    found = share.mounts.room(share.directory)
    return [found.total, found.free]


def listed(share: Share, _asked: Place) -> list[list[Any]]:
    """Name, size and plainness of every file.

    Hidden ones are left out, and names that no text can hold: anybody's server
    may send any bytes.
    """
    found: list[list[Any]] = []
    with os.scandir(share.directory) as entries:
        for number, entry in enumerate(entries):
            share.clock(0)
            if number >= MAX_FILES:
                source = share.mount.source
                raise DriverError(f"share {source} has more than {MAX_FILES} names")
            if entry.name.isprintable() and not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat(follow_symlinks=False)
                    found.append([entry.name, seen.st_size, open_files.plain(seen)])
    return found


def there(share: Share, name: str) -> bool:
    """Whether anything has that name."""
    try:
        os.stat(name, dir_fd=share.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def find(share: Share, asked: Place) -> int | None:
    """The size of a file of ours in bytes, or None."""
    return open_files.size(share.directory, asked.name)


def make(share: Share, asked: Made) -> int:
    """Make it, or grow it to the size; return its size."""
    if find(share, Place(asked.point, asked.name)) is not None:
        return grow(share, asked)
    size = _whole(asked.size)
    share.need(size, asked.preallocate)
    with _half_made(share, asked.name, asked.mode) as file:
        contents.grow(file, 0, size, asked.preallocate, share.clock)
    return size


def grow(share: Share, asked: Made) -> int:
    """Grow it; it never shrinks. Return its size."""
    with _open(share, asked.name) as file:
        old, new = os.fstat(file).st_size, _whole(asked.size)
        if new <= old:
            return old
        share.need(new - old, asked.preallocate)
        contents.grow(file, old, new, asked.preallocate, share.clock)
    return new


def copy(share: Share, asked: Copied) -> int | None:
    """Make a file of another's bytes, and zeros behind them; return its size.

    One that is there is left as it is, unless it shall be replaced. None when it
    shall be a clone and the share has none: nothing is done then.
    """
    if asked.replace:
        with _open(share, asked.name) as old:
            _need_unused(old, asked.name)
    elif (found := open_files.size(share.directory, asked.name)) is not None:
        return found
    with _open(share, asked.source) as source:
        size = os.fstat(source).st_size
        whole = max(size, _whole(asked.size))
        share.need(whole, asked.preallocate and not asked.clone)
        if not asked.clone:
            _need_still(source, asked.source)
        try:
            with _half_made(share, asked.name, asked.mode, asked.replace) as file:
                _fill(share, source, file, asked)
                contents.grow(file, size, whole, asked.preallocate, share.clock)
                if asked.preallocate and asked.name.startswith("volume-"):
                    contents.hold_room(file, whole, share.clock)
                if not asked.clone:
                    verification.prove(asked.name, (source, file), size, share.clock)
        except _NoClones:
            return None
    return whole


class _NoClones(Exception):
    """The share does not clone files."""


def _fill(share: Share, source: int, file: int, asked: Copied) -> None:
    """Put all of the source's bytes into an empty file."""
    size = os.fstat(source).st_size
    if not asked.clone:
        contents.grow(file, 0, size, asked.preallocate, share.clock)
        contents.copy(source, file, size, share.clock)
    else:
        with share.answering():
            if not contents.clone(source, file):
                raise _NoClones
        if (held := os.fstat(file).st_size) < size:
            raise CopyDiffers(asked.name, f"it has {held} bytes and not {size}")


def take(share: Share, asked: Taken) -> int:
    """Give somebody's raw file the volume's name; return its size."""
    if (found := open_files.size(share.directory, asked.name)) is not None:
        return found
    if not there(share, asked.reference):
        raise UnknownReference(asked.reference, "the share has no such file")
    with _taken(share, asked.reference) as file:
        _need_unused(file, asked.name)
        # What a guest wrote into a volume of ours says nothing of its format.
        known = asked.reference.removeprefix(GIVEN)
        if known == asked.reference and (kind := open_files.image(file)):
            why = f"it is a {kind} image; convert it to raw with qemu-img"
            raise UnknownReference(asked.reference, why)
        old = os.fstat(file).st_size
        size = max(_whole(old), _whole(asked.size))
        with share.answering():  # its owner may have left much to flush
            contents.grow(file, old, size, False, share.clock)
        os.fchmod(file, asked.mode)
        os.fsync(file)
        _rename(share, asked.reference, asked.name)
    return size


def give(share: Share, asked: Place) -> None:
    """Take our name from a volume's file. Unknown is success."""
    if open_files.size(share.directory, asked.name) is None:
        return
    with _open(share, asked.name) as file:
        _need_unused(file, asked.name)
        if there(share, GIVEN + asked.name):
            raise DiskBusy(
                nfs_names.identity(asked.name), f"{GIVEN}{asked.name} is there already"
            )
        _rename(share, asked.name, GIVEN + asked.name)


def drop(share: Share, asked: Place) -> None:
    """Remove a file of ours and what was left of making it. Unknown is success."""
    if open_files.size(share.directory, asked.name) is not None:
        with _open(share, asked.name) as file:
            _need_unused(file, asked.name)
    with share.answering():
        for name in (asked.name, asked.name + NEW):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=share.directory)
    os.fsync(share.directory)


@contextlib.contextmanager
def _open(share: Share, name: str) -> Iterator[int]:
    file = open_files.opened(share.directory, name)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _taken(share: Share, reference: str) -> Iterator[int]:
    seen = os.stat(reference, dir_fd=share.directory, follow_symlinks=False)
    if not open_files.plain(seen):
        raise UnknownReference(reference, "it is no regular file with one name")
    file = open_files.open_plain(share.directory, reference)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _half_made(
    share: Share, name: str, mode: int, replace: bool = False
) -> Iterator[int]:
    """A new file to fill; it gets its name when it is whole and flushed.

    Nobody else makes it at the same time (lunshare.drivers.helper.twins). Still, only
    the file that was filled gets the name, and only one that is free or replaced.
    """
    new = name + NEW
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=share.directory)
    file = open_files.created(share.directory, new, mode)
    try:
        yield file
        os.fsync(file)
        if not _is_still(share, new, file):
            raise OSError(errno.EBUSY, f"somebody else has changed {new}")
        if not replace and there(share, name):
            raise OSError(errno.EEXIST, "somebody else has made it meanwhile")
        _rename(share, new, name)
    except BaseException:
        with contextlib.suppress(OSError):
            if _is_still(share, new, file):
                os.unlink(new, dir_fd=share.directory)
        raise
    finally:
        os.close(file)


def _is_still(share: Share, name: str, file: int) -> bool:
    """Whether the name leads to this very file."""
    try:
        found = os.stat(name, dir_fd=share.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def _rename(share: Share, old: str, new: str) -> None:
    here = share.directory
    os.rename(old, new, src_dir_fd=here, dst_dir_fd=here)
    os.fsync(here)


def _need_unused(file: int, name: str) -> None:
    if why := open_files.in_use(file, name):
        raise DiskBusy(nfs_names.identity(name), why)


def _need_still(source: int, name: str) -> None:
    """A copy takes a while: what is written meanwhile would be in half of it."""
    if why := open_files.in_use(source, name):
        raise DiskBusy(
            nfs_names.identity(name),
            f"{why}. Or use a share that clones files (NFS 4.2 on XFS or Btrfs with"
            " reflinks): this one copies, and a copy needs a disk that is not open",
        )


def _whole(size: int) -> int:
    return -(-size // _UNIT) * _UNIT
