# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One life of a helper: a server on a real socket, in a thread of this process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from lunshare.drivers.helper.commands import Commands
from lunshare.drivers.helper.disk_locks import DiskLocks
from lunshare.drivers.helper.nfs.mounts import Mounts
from lunshare.drivers.helper.served import Served
from lunshare.drivers.helper.server import Server, verbs

FILTERS = """
[Filters]
echo: RegExpFilter, echo, root, echo, [a-z]+
sleep: RegExpFilter, sleep, root, sleep, [0-9]+
false: CommandFilter, sh, root
"""
SERVED = Served("iqn.2026-11.io.test:", groups=("vg",))
EXEC_DIRS = ("/usr/bin", "/bin")


class Life:
    """One life of a server on a path."""

    def __init__(self, path: Path, filters: Path, allowed: Collection[int]) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        locks = DiskLocks(str(filters.parent / "work"))
        commands = Commands(str(filters), EXEC_DIRS, SERVED, locks)
        table = verbs(SERVED, commands, Mounts())
        self.server = Server(listener, table, allowed)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a test has ended it already
            self.server.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


Serve = Callable[..., Life]
