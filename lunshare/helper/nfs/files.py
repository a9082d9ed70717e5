# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Operations on the files of one share. Each is safe when the helper is killed.

A file is created as ``<name>.new``, filled, flushed, and gets its name last. A ``.new``
file from a killed helper is removed when that name is created or deleted again. A copy
gets its name after it was read back and compared with its source.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.errors import (
    CopyDiffers,
    DiskBusy,
    DriverError,
    NoSpace,
    UnknownReference,
)
from lunshare.drivers.protocol import nfs_names
from lunshare.drivers.protocol.nfs_names import NEW, UNMANAGED
from lunshare.helper import verification
from lunshare.helper.mounts import Mount, Mounts
from lunshare.helper.nfs import contents, open_files
from lunshare.helper.nfs.answering import answering
from lunshare.helper.nfs.share_requests import FileCopy, FileName, ForeignFile, NewFile
from lunshare.helper.thread_limits import ThreadLimit
from lunshare.helper.verbs import NoteProgress

#: Names that a directory may have. A server may send names without an end.
MAX_FILES = 100_000

#: Lists of more names than this that may be in progress: each has up to 50 MiB. A
#: share that hangs does so before, in general.
LONG_LIST, MAX_LONG_LISTS = 1000, 8
_LONG_LISTS = ThreadLimit(MAX_LONG_LISTS, MAX_LONG_LISTS)
_LIST_SECONDS = 10.0

# Writes during a copy would make it a mixture of two states.
_ELSE_CLONE = (
    ". Or use a share that clones files (NFS 4.2 on XFS or Btrfs with reflinks): this"
    " one copies, and a copy needs a disk that is not open"
)

# Hosts see blocks of 512 bytes, and page caches 4096.
_UNIT = 4096


@dataclass(frozen=True, slots=True)
class OpenShare:
    """An open share, and the progress of the operation in it."""

    directory: int
    mount: Mount
    mounts: Mounts
    is_exported: open_files.IsExported
    note_progress: NoteProgress

    def need(self, more: int, preallocate: bool) -> None:
        """:raises NoSpace: the share is nearly full, or ``more`` bytes do not fit."""
        space = self.mounts.space(self.directory)
        if nfs_names.nearly_full(space.total, space.free):
            raise NoSpace(self.mount.source, f"only {space.free} bytes are free")
        if preallocate and more > space.free:
            why = f"{more} bytes are wanted and {space.free} are free"
            raise NoSpace(self.mount.source, why)

    def answering(self) -> contextlib.AbstractContextManager[None]:
        """Count it as progress that the server answers, while it works on one request.

        For a while, and for requests such as a clone, whose bytes cannot be counted.
        """
        return answering(self.directory, self.mount.point, self.note_progress)


def capacity(share: OpenShare, _asked: FileName) -> dict[str, int]:
    """Return the share's size and its free space, in bytes."""
    space = share.mounts.space(share.directory)
    return {"total": space.total, "free": space.free}


def list_files(share: OpenShare, _asked: FileName) -> list[dict[str, Any]]:
    """Return name, size and plainness of every file.

    Hidden files are left out, and names that are not printable: a server may send any
    bytes.

    A client with a delegation of the directory lists it from its cache, and then does
    not notice that the server has another one there by now (Linux 7.2). So the server
    is asked first.

    :raises HelperBusy: too many long lists are in progress.
    """
    os.fstatvfs(share.directory)  # NFS sends a request each time
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack, os.scandir(share.directory) as entries:
        for number, entry in enumerate(entries):
            share.note_progress(0)
            if number == LONG_LIST:
                _LONG_LISTS.enter("", _LIST_SECONDS)
                stack.callback(_LONG_LISTS.leave, "")
            if number >= MAX_FILES:
                source = share.mount.source
                raise DriverError(f"a share has more than {MAX_FILES} names: {source}")
            if entry.name.isprintable() and not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    rows.append(_listed(entry.name, status))
    return rows


def _listed(name: str, found: os.stat_result) -> dict[str, Any]:
    plain = open_files.is_plain(found)
    return {"name": name, "size": found.st_size, "plain": plain}


def exists(share: OpenShare, name: str) -> bool:
    """Whether a directory entry has that name."""
    try:
        os.stat(name, dir_fd=share.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def find(share: OpenShare, asked: FileName) -> int | None:
    """Return the size of a managed file in bytes, or None if it does not exist."""
    return open_files.size(share.directory, asked.name)


def create(share: OpenShare, asked: NewFile) -> int:
    """Create it, or extend it to the size; return its size."""
    if find(share, FileName(asked.point, asked.name)) is not None:
        return extend(share, asked)
    size = _round_up(asked.size)
    share.need(size, asked.preallocate)
    with _new_file(share, asked.name, asked.mode) as file:
        contents.grow(file, 0, size, asked.preallocate, share.note_progress)
    return size


def extend(share: OpenShare, asked: NewFile) -> int:
    """Extend it; it never shrinks. Return its size."""
    with _open(share, asked.name) as file:
        old, new = os.fstat(file).st_size, _round_up(asked.size)
        if new <= old:
            return old
        share.need(new - old, asked.preallocate)
        contents.grow(file, old, new, asked.preallocate, share.note_progress)
    return new


def copy(share: OpenShare, asked: FileCopy) -> int | None:
    """Create a file with another's bytes, and zeros after them; return its size.

    An existing one is not changed, unless ``replace`` is set. With ``clone`` the result
    is None if the share does not support clones; nothing is changed then.
    """
    if asked.replace:
        with _open(share, asked.name) as old:
            _need_unused(share, old, asked.name)
    elif (size_now := open_files.size(share.directory, asked.name)) is not None:
        return size_now
    with _open(share, asked.source) as source:
        size = os.fstat(source).st_size
        whole = max(size, _round_up(asked.size))
        share.need(whole, asked.preallocate and not asked.clone)
        if not asked.clone:
            _need_unused(share, source, asked.source, _ELSE_CLONE)
        try:
            with _new_file(share, asked.name, asked.mode, asked.replace) as file:
                _fill(share, source, file, asked)
                contents.grow(file, size, whole, asked.preallocate, share.note_progress)
                if asked.preallocate and asked.name.startswith("volume-"):
                    contents.reserve_space(file, whole, share.note_progress)
                if not asked.clone:
                    holes = share.mounts.trusts_holes(source)
                    sides, note_progress = (source, file), share.note_progress
                    verification.verify(
                        asked.name, sides, size, note_progress, holes=holes
                    )
        except _NoClones:
            return None
    return whole


class _NoClones(Exception):
    """The share does not clone files."""


def _fill(share: OpenShare, source: int, file: int, asked: FileCopy) -> None:
    """Write all of the source's bytes into an empty file."""
    size = os.fstat(source).st_size
    if not asked.clone:
        contents.grow(file, 0, size, asked.preallocate, share.note_progress)
        contents.copy(source, file, size, share.note_progress)
    else:
        with share.answering():
            if not contents.clone(source, file):
                raise _NoClones
        if (size_now := os.fstat(file).st_size) < size:
            raise CopyDiffers(asked.name, f"it has {size_now} bytes and not {size}")


def manage(share: OpenShare, asked: ForeignFile) -> int:
    """Rename a foreign raw file to the volume's name; return its size."""
    if (size_now := open_files.size(share.directory, asked.name)) is not None:
        return size_now
    if not exists(share, asked.reference):
        raise UnknownReference(asked.reference, "the share has no such file")
    with _foreign_file(share, asked.reference) as file:
        _need_unused(share, file, asked.name)
        # The bytes of an unmanaged volume are a guest's: they do not show a format.
        volume_id = asked.reference.removeprefix(UNMANAGED)
        if volume_id == asked.reference and (kind := open_files.image_format(file)):
            why = f"it is a {kind} image; convert it to raw with qemu-img"
            raise UnknownReference(asked.reference, why)
        old = os.fstat(file).st_size
        size = max(_round_up(old), _round_up(asked.size))
        with share.answering():  # the server may have much to flush
            contents.grow(file, old, size, False, share.note_progress)
        os.fchmod(file, asked.mode)
        os.fsync(file)
        _rename(share, file, asked.reference, asked.name)
    return size


def unmanage(share: OpenShare, asked: FileName) -> None:
    """Rename a volume's file to ``unmanaged-...``. An unknown file is success."""
    if open_files.size(share.directory, asked.name) is None:
        return
    with _open(share, asked.name) as file:
        _need_unused(share, file, asked.name)
        if exists(share, UNMANAGED + asked.name):
            raise DiskBusy(
                nfs_names.id_of(asked.name), f"{UNMANAGED}{asked.name} already exists"
            )
        _rename(share, file, asked.name, UNMANAGED + asked.name)


def delete(share: OpenShare, asked: FileName) -> None:
    """Delete a managed file and its ``.new`` file. An unknown file is success."""
    if open_files.size(share.directory, asked.name) is not None:
        with _open(share, asked.name) as file:
            _need_unused(share, file, asked.name)
    with share.answering():
        for name in (asked.name, asked.name + NEW):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=share.directory)
    os.fsync(share.directory)


@contextlib.contextmanager
def _open(share: OpenShare, name: str) -> Iterator[int]:
    file = open_files.open_file(share.directory, name)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _foreign_file(share: OpenShare, reference: str) -> Iterator[int]:
    status = os.stat(reference, dir_fd=share.directory, follow_symlinks=False)
    if not open_files.is_plain(status):
        raise UnknownReference(reference, "it is not a regular file with one name")
    file = open_files.open_plain(share.directory, reference)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _new_file(
    share: OpenShare, name: str, mode: int, replace: bool = False
) -> Iterator[int]:
    """Yield a new file to fill; it gets its name when it is complete and flushed.

    Its lock excludes a second helper (lunshare.helper.disk_locks). In addition,
    only the file that was filled gets the name, and only if the name is free or
    ``replace`` is set.
    """
    new = name + NEW
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=share.directory)
    file = open_files.create_file(share.directory, new, mode)
    try:
        yield file
        os.fsync(file)
        if not replace and exists(share, name):
            raise OSError(errno.EEXIST, "another process has created it meanwhile")
        _rename(share, file, new, name)
    except BaseException:
        with contextlib.suppress(OSError):
            if _is_still(share, new, file):
                os.unlink(new, dir_fd=share.directory)
        raise
    finally:
        os.close(file)


def _is_still(share: OpenShare, name: str, file: int) -> bool:
    """Whether the name is still that of this open file."""
    try:
        status = os.stat(name, dir_fd=share.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(file))


def _rename(share: OpenShare, file: int, old: str, new: str) -> None:
    """Rename an open file, if that is still its name and its client still waits.

    A client that has given up may have exported the volume since, with its old file.
    """
    share.note_progress(0)
    if not _is_still(share, old, file):
        raise OSError(errno.EBUSY, f"another process has replaced {old}")
    here = share.directory
    os.rename(old, new, src_dir_fd=here, dst_dir_fd=here)
    os.fsync(here)


def _need_unused(share: OpenShare, file: int, name: str, remedy: str = "") -> None:
    open_files.need_unused(file, name, share.is_exported, remedy)


def _round_up(size: int) -> int:
    return -(-size // _UNIT) * _UNIT
