# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of this driver, all of them; rootwrap.d/dirs.filters allows these.

Only root may change the directory: lunshare's helper exports no file that someone
else could put another in the place of. A file belongs to the daemon, so that it
may ask the kernel who has it open (``in_use``).
"""

from __future__ import annotations

import fcntl
import os

from lunshare.drivers.base import Root


class Commands:
    """Files in one directory, made and removed by root."""

    def __init__(self, root: Root, directory: str) -> None:
        self._root, self._directory = root, directory

    def path(self, name: str) -> str:
        """Where the file of that name is."""
        return f"{self._directory}/{name}"

    def begin(self, name: str) -> None:
        """An empty file NAME.new; what an earlier life left there is gone."""
        owner = ("-o", str(os.getuid()), "-m", "0600")
        self._root.run("install", *owner, "/dev/null", self.path(name) + ".new")

    def size(self, name: str, size: int) -> None:
        """Let a file have at least that many bytes, with room; new ones are zeros."""
        self._root.run("fallocate", "-l", str(size), self.path(name))

    def finish(self, name: str) -> None:
        """NAME.new becomes NAME, and a power cut does not take it back."""
        path = self.path(name)
        self._root.run("sync", f"{path}.new")
        self._root.run("mv", "-T", f"{path}.new", path)
        self._root.run("sync", self._directory)

    def flush(self, name: str) -> None:
        """Let the medium have a file's size and room."""
        self._root.run("sync", self.path(name))

    def remove(self, name: str) -> None:
        """Remove NAME and NAME.new; neither need be there."""
        path = self.path(name)
        self._root.run("rm", "-f", f"{path}.new", path)


def in_use(path: str) -> bool:
    """Whether anybody has the file open, the kernel's target included.

    The kernel grants a write lease on a file that nobody else has open, and to
    the file's owner only (fcntl(2), F_SETLEASE).
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
