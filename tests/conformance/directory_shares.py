# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A plain directory in the place of an NFS share. Everything but NFS is real.

The verbs of the root helper work on it, behind the helper's socket. Only the kernel's
table of mounts and the size of the file system are simulated.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lunshare.drivers.base import Root
from lunshare.drivers.helper_client import Helper
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.mounts import Mount, Mounts, Space
from lunshare.helper.nfs.share_verbs import ShareVerbs
from lunshare.helper.served import Served
from lunshare.helper.server import Server, Verb

_BLOCK = 512


class Directories(Mounts):
    """Directories as shares. ``mounted`` is from a mount point to its source."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total, self.taken = total, 0
        self.mounted: dict[str, str] = {}
        #: Called with the source before a share is entered, as the server's part.
        self.server: Callable[[str], None] = lambda source: None
        #: The holes are those of this machine. A share's own answer: ``super()``.
        self.local_holes = True

    def trusts_holes(self, file: int) -> bool:
        return self.local_holes or super().trusts_holes(file)

    def table(self) -> Iterable[Mount]:
        for point, source in list(self.mounted.items()):
            yield Mount(point, os.stat(point).st_dev, "nfs4", source)

    @contextlib.contextmanager
    def enter(self, mount: Mount) -> Iterator[int]:
        self.server(mount.source)
        with super().enter(mount) as share:
            yield share

    def space(self, share: int) -> Space:
        used = self.taken
        with os.scandir(share) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        return Space(self.total, max(0, self.total - used))


class Node:
    """The root helper of a node. A mount is a line in the table."""

    def __init__(self, helper: Root, mounts: Directories) -> None:
        self._helper, self._mounts = helper, mounts
        self.commands: list[str] = []
        self.verbs: list[str] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.commands.append(argv[0])
        point = argv[-1]
        if argv[0] == "mkdir":
            Path(point).mkdir(parents=True, exist_ok=True)
        elif argv[0] == "mount":
            self._mounts.mounted[point] = argv[-2]
        elif argv[0] == "umount":
            del self._mounts.mounted[point]
        return ""

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self.verbs.append(verb)
        return self._helper.call(verb, timeout=timeout, **arguments)


class ShareHelper:
    """A root helper with the verbs on files only."""

    def __init__(self, path: Path, mounts: Mounts) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        base, shares = str(path.parent / "mnt"), ("nas:/", "filer:/")
        served = Served(base=base, shares=shares, manage=True)
        locks = DiskLocks(str(path.with_name("work")))
        verbs: dict[str, Verb] = {
            **ShareVerbs(mounts, served, is_exported, locks).verbs(),
            **CopyVerbs(served, is_exported, mounts, locks).verbs(),
        }
        self._server = Server(listener, verbs, {os.getuid()})
        self._thread = threading.Thread(target=self._server.serve)
        self._thread.start()
        self.client = Helper(str(path))

    def end(self) -> None:
        self.client.close()
        self._server.close()
        self._thread.join(10)
