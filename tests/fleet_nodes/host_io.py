# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""I/O of one host without a pause: a writer remembers what was acknowledged."""

from __future__ import annotations

import threading

from tests.system.hosts import block
from tests.system.lio_hosts import Session

#: The blocks that a writer fills in turn, and where they begin.
BLOCKS, FIRST = 256, 4096
_PAUSE = 0.02  # the guest has one processor
_LONGEST = 300.0


def content(last: int) -> bytes:
    """The blocks after ``last`` rounds: each has the newest one that it had."""
    data = [bytes(512)] * BLOCKS
    for number in range(max(0, last - BLOCKS), last):
        data[number % BLOCKS] = written(number)
    return b"".join(data)


def written(number: int) -> bytes:
    """The block of a round."""
    return block(f"round {number} ")


class HostIo:
    """Rounds of a writer, which also reads back, or of a reader, until ``stop``."""

    def __init__(self, session: Session, mode: str) -> None:
        self._session, self._mode = session, mode
        self._rounds, self._error = 0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def state(self) -> tuple[int, str]:
        """Completed rounds, and the first error."""
        return self._rounds, self._error

    def stop(self) -> tuple[int, str]:
        """End after the present round; return the state."""
        self._stop.set()
        self._thread.join(_LONGEST)
        return self._rounds, "it hangs" if self._thread.is_alive() else self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                self._round(self._rounds)
                self._rounds += 1
        except Exception as error:
            self._error = repr(error)

    def _round(self, number: int) -> None:
        at = FIRST + number % BLOCKS
        if self._mode == "rw":
            self._session.write(at, written(number))
            assert self._session.read(at) == written(number)
        else:
            self._session.read(at)
