# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many mount points of shares there may be, and one mount on each.

The daemon chooses the names of the points. Each is a directory in /run, whose inodes
the whole node shares, and each mount a line of the node's mount table, which every
mount of the node needs (fs.mount-max) and systemd reads. The kernel itself mounts a
share twice at one point when an option such as nosharecache makes it another one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from lunshare.drivers.errors import CommandFailed, HelperRefused
from lunshare.helper.mounts import KERNEL, Mounts
from lunshare.helper.named_locks import Locks

#: More shares than any node has.
MAX_POINTS = 256

_FAILED = 32  # mount(8), "mount failure"


class MountPoints:
    """The mount points below ``base``, and what is mounted there."""

    def __init__(self, base: str, mounts: Mounts = KERNEL) -> None:
        self._base, self._mounts, self._locks = base, mounts, Locks()

    @contextlib.contextmanager
    def change(self, argv: Sequence[str], seconds: float) -> Iterator[None]:
        """Run a mkdir or a mount in the block, one after the other at one place.

        Any other command runs without a check.

        :raises HelperRefused: there are too many mount points.
        :raises CommandFailed: a share is mounted there.
        :raises DeadlineExceeded: another one is still in progress.
        """
        point = argv[-1]
        match argv[0]:
            case "mkdir":
                with self._locks.hold(self._base, seconds):
                    self._need_few(point)
                    yield
            case "mount":
                with self._locks.hold(point, seconds):
                    self._need_free(argv)
                    yield
            case _:
                yield

    def _need_few(self, point: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            many = len(os.listdir(self._base))
            if many >= MAX_POINTS and not os.path.lexists(point):
                why = f"{self._base} has {many} mount points: rmdir what is not in use"
                raise HelperRefused(point, why)

    def _need_free(self, argv: Sequence[str]) -> None:
        if mount := self._mounts.find(argv[-1]):
            why = f"{mount.source} is already mounted there"
            raise CommandFailed(tuple(argv), _FAILED, why)
