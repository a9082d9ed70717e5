# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A helper in a thread of this process, with a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from lunshare.helper.commands import Commands
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.main import verbs
from lunshare.helper.mounts import Mounts
from lunshare.helper.served import Served
from lunshare.helper.server import Server

FILTERS = """
[Filters]
echo: RegExpFilter, echo, root, echo, [a-z]+
sleep: RegExpFilter, sleep, root, sleep, [0-9]+
false: CommandFilter, sh, root
"""
SERVED = Served("iqn.2026-11.io.test:", groups=("vg",))
EXEC_DIRS = ("/usr/bin", "/bin")


class HelperThread:
    """The thread of a server, and its socket at a path."""

    def __init__(
        self,
        path: Path,
        filters: Path,
        allowed: Collection[int],
        served: Served = SERVED,
        exec_dirs: Sequence[str] = EXEC_DIRS,
    ) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        locks = DiskLocks(str(filters.parent / "work"))
        commands = Commands(str(filters), exec_dirs, served, locks)
        table = verbs(served, commands, Mounts())
        self.server = Server(listener, table, allowed)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a test has ended it already
            self.server.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


Serve = Callable[..., HelperThread]


def write_filters(parent: Path, text: str) -> Path:
    """Create a directory of filters with one file; return the directory."""
    directory = parent / "rootwrap.d"
    directory.mkdir(mode=0o755)
    (directory / "test.filters").write_text(text)
    (directory / "test.filters").chmod(0o644)
    return directory


def filters_of(*programs: str) -> str:
    """Return filters that allow these programs with any arguments."""
    lines = [f"{name}: CommandFilter, {name}, root" for name in programs]
    return "\n".join(["[Filters]", *lines, ""])
