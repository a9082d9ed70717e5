# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An NFS server on this node: the kernel's, with a filesystem that clones files.

Client and server are one kernel here, so only the network is missing.
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
from contextlib import AbstractContextManager
from pathlib import Path

from lunshare.drivers.share_options import Share
from tests.stands.waiting import until
from tests.system.broken_disk import START, Trouble, broken, table
from tests.system.lio_node import MIB, run

SIZE = 512 * MIB
BASE = Path("/run/lunshare/mnt")  # as in rootwrap.d/nfs.filters
_CONF = Path("/etc/nfs.conf.d/lunshare-kit.conf")
_DISK = f"lunshare-nfs-{os.getpid()}"
_LOG_SIZE = 64 * MIB  # the least that mkfs.xfs 6.1 accepts for a log
_WHOLE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_EXPORTS = Path("/etc/exports.d/lunshare-kit.exports")


class NfsServer:
    """One exported XFS of ``size`` bytes. ``share`` is what clients mount."""

    def __init__(self, directory: Path, size: int = SIZE) -> None:
        self.path = directory / "export"
        self._disk = _loop_device(directory / "image", START * 512 + size)
        run("dmsetup", "create", _DISK, "--table", table(self._disk))
        # XFS shuts down at an error of its log, and at a failed flush of its disk
        # (Linux 6.12, xlog_write_iclog). So the log is on a disk that never fails, and
        # the disk is below a loop device without a write cache, which has no flushes.
        self._log = _loop_device(directory / "log", _LOG_SIZE)
        self._loop = _attached(f"/dev/mapper/{_DISK}", "--direct-io=on")
        queue = Path("/sys/block") / Path(self._loop).name / "queue"
        (queue / "write_cache").write_text("write through")
        log = f"logdev={self._log}"
        run("mkfs.xfs", "-q", "-m", "reflink=1", "-l", log, self._loop)
        self.path.mkdir()
        run("mount", "-o", log, self._loop, str(self.path))
        self.share = Share("127.0.0.1", str(self.path), "vers=4.2")
        # For a client two shares with one fsid are the same share.
        self._fsid = random.randrange(1, 2**30)
        for path in (_CONF, _EXPORTS):
            path.parent.mkdir(exist_ok=True)
        # How long clients may reclaim their locks after a restart; the default is 90 s.
        _CONF.write_text("[nfsd]\nlease-time=10\ngrace-time=10\n")
        self.export()
        self.start()

    def export(self, *options: str, fsid_offset: int = 0) -> None:
        """Export to this node, by default as root and writable."""
        chosen = ",".join(options or ("rw", "no_root_squash"))
        always = f"no_subtree_check,fsid={self._fsid + fsid_offset}"
        _EXPORTS.write_text(f"{self.path} 127.0.0.1({chosen},{always})\n")
        run("exportfs", "-r")
        run("exportfs", "-f")

    def start(self) -> None:
        """Start it and wait until it answers requests for locks, which a delete needs.

        lockd has its own grace time, in which LOCKT is answered GRACE (Linux 6.1
        nfsd4_lockt); the client repeats the request until its end.
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
        """Stop it: it answers no request."""
        run("systemctl", "stop", "nfs-server")

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """The server is stopped until the end of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()  # its unit exports the same shares again

    @contextlib.contextmanager
    def exported(self, *options: str) -> Iterator[None]:
        """Export with other options until the end of the block."""
        self.export(*options)
        try:
            yield
        finally:
            self.export()

    @contextlib.contextmanager
    def another(self) -> Iterator[None]:
        """The share has another identity: the clients' file handles are stale."""
        self.export(fsid_offset=1)
        try:
            yield
        finally:
            self.export()

    def failing(self, trouble: Trouble) -> AbstractContextManager[None]:
        """Its disk fails until the end of the block."""
        return broken(_DISK, self._disk, trouble)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Fill it up to the last 2 MiB."""
        self.wait_for_free_space()
        filler = self.path / "filler"
        space = os.statvfs(self.path)
        free = space.f_bavail * space.f_frsize
        run("fallocate", "-l", str(free - 2 * MIB), str(filler))
        try:
            yield
        finally:
            filler.unlink()
            self.wait_for_free_space()

    def wait_for_free_space(self) -> None:
        """Wait until XFS has freed deleted files: a freeze waits for that."""
        run("fsfreeze", "--freeze", str(self.path))
        run("fsfreeze", "--unfreeze", str(self.path))

    def close(self) -> None:
        """Remove everything."""
        point = self.share.point(str(BASE))
        until(lambda: unmounted(point))
        shutil.rmtree(point, ignore_errors=True)
        self.stop()
        for file in (_CONF, _EXPORTS):
            file.unlink()
        run("umount", str(self.path))
        run("losetup", "--detach", self._loop, self._log)
        run("dmsetup", "remove", "--retry", _DISK)
        run("losetup", "--detach", self._disk)


def _loop_device(image: Path, size: int) -> str:
    with image.open("wb") as file:
        file.truncate(size)
    return _attached(str(image))


def _attached(file: str, *options: str) -> str:
    return run("losetup", "--find", "--show", *options, file).strip()


def unmounted(point: str) -> bool:
    """Unmount it; returns False while it is busy."""
    with contextlib.suppress(AssertionError):
        run("umount", point)
    return not os.path.ismount(point)
