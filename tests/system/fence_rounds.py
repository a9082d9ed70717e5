# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds of one test: a host that writes freezes, is fenced, and comes back later."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from tests.stands.waiting import until
from tests.system.frozen_writer import FrozenWriter
from tests.system.hosts import Info, block
from tests.system.lio_hosts import Session

AT = 8
#: Random parts of ISIDs: that of the frozen session, and of one that follows.
SAME, ANOTHER = 1, 2


class Rounds:
    """A host that freezes, a survivor, and how long each fence took."""

    def __init__(self, lost: FrozenWriter, info: Info, survivor: Session) -> None:
        self._lost, self._info, self._survivor = lost, info, survivor
        self.seconds: list[float] = []

    def run(self, fence: Callable[[], None]) -> None:
        """Freeze the host under I/O, fence it, write, and let it come back.

        It comes back with the ISID that it had, and with another one.
        """
        before = self._survivor.read(AT)
        self._lost.begin(self._info, SAME)
        until(lambda: self._survivor.read(AT) != before)
        self._lost.freeze()
        began = time.monotonic()
        fence()
        self.seconds.append(time.monotonic() - began)
        landed = self._survivor.read(AT)
        ours = block(f"survivor {len(self.seconds)}")
        self._survivor.write(AT, ours)
        self._lost.thaw()
        ended = self._lost.ended()
        possible = {block(str(ended["acknowledged"] + more)) for more in (0, 1)}
        assert landed in possible, ended
        for isid in (SAME, ANOTHER):
            self._lost.begin(self._info, isid)
            assert self._lost.ended() == {"refused": True}
        assert self._survivor.read(AT) == ours

    def report(self, what: str) -> str:
        """A line for the log."""
        return (
            f"{len(self.seconds)} of {what}: median"
            f" {statistics.median(self.seconds):.2f} s, longest"
            f" {max(self.seconds):.2f} s; nothing was written after one"
        )
