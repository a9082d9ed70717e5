# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An NFS server on this node: the kernel's own, with a filesystem that clones.

Client and server are one kernel here, so a share behaves as over a wire, but
for the wire.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lunshare.drivers.share_options import Share
from tests.system.lio_node import MIB, run
from tests.system.waiting import wait_until

SIZE = 512 * MIB
BASE = Path("/run/lunshare/mnt")  # as rootwrap.d/nfs.filters has it
_CONF = Path("/etc/nfs.conf.d/lunshare-kit.conf")
_WHOLE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_EXPORTS = Path("/etc/exports.d/lunshare-kit.exports")


class NfsServer:
    """One exported XFS. ``share`` is what clients mount."""

    def __init__(self, directory: Path) -> None:
        self._image, self.path = directory / "image", directory / "export"
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        run("mkfs.xfs", "-q", "-m", "reflink=1", str(self._image))
        self.path.mkdir()
        run("mount", "-o", "loop", str(self._image), str(self.path))
        self.share = Share("127.0.0.1", str(self.path), "vers=4.2")
        # A client takes two shares of one fsid for the same one.
        self._fsid = random.randrange(1, 2**30)
        for path in (_CONF, _EXPORTS):
            path.parent.mkdir(exist_ok=True)
        # After a restart clients may claim what they had for so long: 90 s else.
        _CONF.write_text("[nfsd]\nlease-time=10\ngrace-time=10\n")
        self.export()
        self.start()

    def export(self, *options: str, moved: int = 0) -> None:
        """Let this node in, by default as root and to write."""
        chosen = ",".join(options or ("rw", "no_root_squash"))
        always = f"no_subtree_check,fsid={self._fsid + moved}"
        _EXPORTS.write_text(f"{self.path} 127.0.0.1({chosen},{always})\n")
        run("exportfs", "-r")
        run("exportfs", "-f")

    def start(self) -> None:
        """Come back when it tells of locks again, as removing a file needs.

        lockd has a grace time beside nfsd's, during which LOCKT is answered GRACE
        (Linux 6.1 nfsd4_lockt); the client asks again until it is over.
        """
        run("systemctl", "start", "nfs-server")
        with tempfile.TemporaryDirectory() as point:
            run("mount", "-t", "nfs", "-o", "vers=4.2", self.share.source, point)
            try:
                with open(f"{point}/.kit-lock", "w") as file:
                    fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE)
                os.unlink(file.name)
            finally:
                run("umount", point)

    def stop(self) -> None:
        """No request is answered from here on."""
        run("systemctl", "stop", "nfs-server")

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """The server is dead until the end of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()  # its unit exports all that it did before

    @contextlib.contextmanager
    def exported(self, *options: str) -> Iterator[None]:
        """Exported otherwise until the end of the block."""
        self.export(*options)
        try:
            yield
        finally:
            self.export()

    @contextlib.contextmanager
    def another(self) -> Iterator[None]:
        """The share has another identity: what clients know of it is stale."""
        self.export(moved=1)
        try:
            yield
        finally:
            self.export()

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Somebody fills it to the last two MiB."""
        self.settle()
        filler = self.path / "filler"
        found = os.statvfs(self.path)
        free = found.f_bavail * found.f_frsize
        run("fallocate", "-l", str(free - 2 * MIB), str(filler))
        try:
            yield
        finally:
            filler.unlink()
            self.settle()

    def settle(self) -> None:
        """XFS gives back the room of removed files by and by; a freeze waits for it."""
        run("fsfreeze", "--freeze", str(self.path))
        run("fsfreeze", "--unfreeze", str(self.path))

    def close(self) -> None:
        """Leave nothing behind."""
        point = self.share.point(str(BASE))
        wait_until(lambda: unmounted(point))
        shutil.rmtree(point, ignore_errors=True)
        self.stop()
        for file in (_CONF, _EXPORTS):
            file.unlink()
        run("umount", str(self.path))


def unmounted(point: str) -> bool:
    """Take it away, unless somebody is still at work in it."""
    with contextlib.suppress(AssertionError):
        run("umount", point)
    return not os.path.ismount(point)
