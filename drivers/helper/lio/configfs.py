# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The few calls that configfs knows, each as thin as it can be.

An attribute is read and written whole, in one system call; a directory is an
object of the kernel's; a symbolic link is a relation. All raise OSError.
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
    """An attribute's text without the newline at its end."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _PAGE).decode(errors="replace").rstrip("\n")
    finally:
        os.close(descriptor)


def look(path: str) -> str:
    """As ``read``; an empty text when the object is not there."""
    try:
        return read(path)
    except FileNotFoundError:
        return ""


def write(path: str, value: str) -> None:
    """Set an attribute; no newline is added, for CHAP values would keep it."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def settle(path: str, value: str) -> bool:
    """Set an attribute unless it has this value; say whether it was set."""
    if read(path) == value:
        return False
    write(path, value)
    return True


def make(path: str) -> bool:
    """Make an object; say whether it is new."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    return True


def drop(path: str) -> None:
    """Remove an object if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def links(path: str) -> list[str]:
    """The names of the relations below an object; none when it is not there."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_symlink()]
    except FileNotFoundError:
        return []


def names(path: str) -> list[str]:
    """What a directory holds; nothing when it is not there."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
