# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command of this driver that runs as root; see rootwrap.d/dirs.filters.

Only root may change the directory: the root helper does not export a file that
another user could replace. A file belongs to the daemon's user, so the daemon can ask
the kernel whether it is open (``in_use``).
"""

from __future__ import annotations

import fcntl
import os

from lunshare.drivers.base import Root


class Commands:
    """The commands on files in one directory."""

    def __init__(self, root: Root, directory: str) -> None:
        self._root, self._directory = root, directory

    def path(self, name: str) -> str:
        """Return the path of the file."""
        return f"{self._directory}/{name}"

    def create_empty(self, name: str) -> None:
        """Create an empty file NAME.new, in place of one that a killed call left."""
        owner = ("-o", str(os.getuid()), "-m", "0600")
        self._root.run("install", *owner, "/dev/null", self.path(name) + ".new")

    def allocate(self, name: str, size: int) -> None:
        """Allocate at least ``size`` bytes for a file; new bytes are zeros."""
        self._root.run("fallocate", "-l", str(size), self.path(name))

    def rename_new(self, name: str) -> None:
        """Rename NAME.new to NAME, on stable storage."""
        path = self.path(name)
        self._root.run("sync", f"{path}.new")
        self._root.run("mv", "-T", f"{path}.new", path)
        self._root.run("sync", self._directory)

    def flush(self, name: str) -> None:
        """Flush a file's size and allocation to stable storage."""
        self._root.run("sync", self.path(name))

    def remove(self, name: str) -> None:
        """Remove NAME and NAME.new; neither need exist."""
        path = self.path(name)
        self._root.run("rm", "-f", f"{path}.new", path)


def in_use(path: str) -> bool:
    """Whether a process, or the kernel's target, has the file open.

    The kernel grants a write lease only on a file that is not open elsewhere, and
    only to the file's owner (fcntl(2), F_SETLEASE).
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    finally:
        os.close(file)  # a lease ends with it
    return False
