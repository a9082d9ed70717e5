# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds of one test: a host that writes is lost, is fenced, and comes back later."""

from __future__ import annotations

import operator
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.stands.waiting import until
from tests.system.frozen_writer import FrozenWriter
from tests.system.hosts import Info, block
from tests.system.lio_hosts import Session

AT = 8
#: Random parts of ISIDs: those of the sessions of each path, and of one that follows.
SAME, ANOTHER = 1, 9


class Path(NamedTuple):
    """One path of the host: who writes on it, by what login, and which block."""

    writer: FrozenWriter
    info: Info
    at: int = AT


class Rounds:
    """A host that is lost, a survivor, and how long each fence took.

    ``lose`` freezes the host, or cuts its paths; ``find`` undoes that.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        lose: Callable[[], None],
        find: Callable[[], None],
        survivor: Session,
    ) -> None:
        self._paths, self._lose, self._find = paths, lose, find
        self._survivor = survivor
        self.seconds: list[float] = []

    @classmethod
    def of_frozen(cls, lost: FrozenWriter, info: Info, survivor: Session) -> Rounds:
        """Those of a host with one path, which freezes."""
        return cls([Path(lost, info)], lost.freeze, lost.thaw, survivor)

    def run(self, fence: Callable[[], None]) -> None:
        """Lose the host under I/O, fence it, write, and let it come back.

        It comes back on each path with the ISID that it had, and with another one.
        """
        before = self._read()
        for number, path in enumerate(self._paths):
            path.writer.begin(path.info, SAME + number)
        until(lambda: all(map(operator.ne, self._read(), before)), "it writes")
        self._lose()
        began = time.monotonic()
        fence()
        self.seconds.append(time.monotonic() - began)
        landed = self._read()
        ours = block(f"survivor {len(self.seconds)}")
        for path in self._paths:
            self._survivor.write(path.at, ours)
        self._find()
        for path, data in zip(self._paths, landed, strict=True):
            ended = path.writer.ended()
            possible = {block(str(ended["acknowledged"] + more)) for more in (0, 1)}
            assert data in possible, ended
        for number, path in enumerate(self._paths):
            for isid in (SAME + number, ANOTHER):
                path.writer.begin(path.info, isid)
                assert path.writer.ended() == {"refused": True}
        assert self._read() == [ours] * len(self._paths)

    def _read(self) -> list[bytes]:
        return [self._survivor.read(path.at) for path in self._paths]

    def report(self, what: str) -> str:
        """A line for the log."""
        return (
            f"{len(self.seconds)} of {what}: median"
            f" {statistics.median(self.seconds):.2f} s, longest"
            f" {max(self.seconds):.2f} s; nothing was written after one"
        )
