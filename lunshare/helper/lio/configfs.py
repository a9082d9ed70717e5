# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Plain calls on configfs.

An attribute is read and written completely, in one system call. A directory is an
object in the kernel. A symbolic link is a relation. All functions raise OSError.
"""

from __future__ import annotations

import contextlib
import os

ROOT = "/sys/kernel/config/target"
CORE = ROOT + "/core"
ISCSI = ROOT + "/iscsi"

# An attribute is at most one page (fs/configfs/file.c).
_PAGE = os.sysconf("SC_PAGE_SIZE")


def read(path: str) -> str:
    """Return the text of an attribute without the newline at its end."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _PAGE).decode(errors="replace").rstrip("\n")
    finally:
        os.close(descriptor)


def read_or_empty(path: str) -> str:
    """Return the same as ``read``; an empty text when the object does not exist."""
    try:
        return read(path)
    except FileNotFoundError:
        return ""


def write(path: str, value: str) -> None:
    """Set an attribute. No newline is added: it would become part of a CHAP value."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def write_and_read(path: str, value: str) -> str:
    """Set an attribute, and return what the kernel then shows, without the newline.

    The kernel asks the object again for a read that follows a write of the same open
    file (fill_write_buffer sets needs_read_fill, fs/configfs/file.c, 6.1 and 6.12).
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.write(descriptor, value.encode())
        return os.pread(descriptor, _PAGE, 0).decode(errors="replace").rstrip("\n")
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def write_if_different(path: str, value: str) -> bool:
    """Set an attribute unless it has this value; return whether it was set."""
    if read(path) == value:
        return False
    write(path, value)
    return True


def create_object(path: str) -> bool:
    """Create an object; return whether it is new."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    return True


def remove_object(path: str) -> None:
    """Remove an object if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def links(path: str) -> list[str]:
    """Return the names of the links below an object; none when it does not exist."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_link(path: str, name: str) -> None:
    """Remove the one link that an object can have, most likely of this name."""
    try:
        os.unlink(f"{path}/{name}")
    except FileNotFoundError:
        remove_links(path)


def remove_links(path: str) -> None:
    """Remove the links below an object."""
    for name in links(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}/{name}")


def names(path: str) -> list[str]:
    """Return the names in a directory; none when it does not exist.

    An attribute has none: the target's directories have some beside their objects
    (iscsi/lio_version, iscsi/cpus_allowed_list since 5.18).
    """
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
