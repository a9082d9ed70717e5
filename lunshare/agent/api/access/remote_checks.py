# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that a policy server decides (``http:`` and ``https:`` of oslo.policy).

Such a server may be slow, or send its answer byte by byte, which no timeout of a
socket ends. So it is asked in a thread for which a request waits only so long.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate

from lunshare.agent.api.faults import Fault
from lunshare.agent.threads.limit import Holder, Limit
from lunshare.agent.threads.turn import waiting

LOG = logging.getLogger(__name__)

REFERENCE = re.compile(r"rule:([^\s()]+)")
_REMOTE = re.compile(r"\bhttps?:")
_QUEUE_SECONDS = 0.5  # for which a request waits until fewer others are asking
_RETRY = {"Retry-After": "5"}


class RemoteChecks:
    """Asks policy servers, in few threads, each for a limited time."""

    def __init__(self, at_once: int, seconds: float) -> None:
        """``seconds`` is how long a request waits; ``at_once`` how many may wait.

        One more waits a moment, and fails: the threads are for all requests.
        """
        self._limit, self._seconds = Limit(at_once, seconds), seconds

    def ask(self, decide: Callable[[], bool]) -> bool:
        """Return what ``decide`` returns, which asks a server.

        :raises Fault: 503, it fails or does not answer in time.
        """
        answer: Future[bool] = Future()
        try:
            with waiting():
                if holder := self._limit.acquire(_QUEUE_SECONDS):
                    self._start(holder, decide, answer)
                    return answer.result(self._seconds)
            LOG.warning("[policy] other requests are waiting for a server")
        except TooLate:
            LOG.warning("[policy] no answer of a server in %g s", self._seconds)
        except Exception as error:
            LOG.warning("[policy] a check by a server failed: %s", error)
        raise Fault(503, "The policy server does not answer: try again.", _RETRY)

    def _start(
        self, holder: Holder, decide: Callable[[], bool], answer: Future[bool]
    ) -> None:
        thread = threading.Thread(
            target=self._run,
            args=(holder, decide, answer),
            name="policy check",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # there are too many threads
            self._limit.release(holder)
            raise

    def _run(
        self, holder: Holder, decide: Callable[[], bool], answer: Future[bool]
    ) -> None:
        try:
            answer.set_result(bool(decide()))
        except Exception as error:
            answer.set_exception(error)
        finally:
            self._limit.release(holder)


def remote_rules(checks: Mapping[str, object]) -> frozenset[str]:
    """Return the rules that need a policy server, also through other rules."""
    texts = {name: str(check) for name, check in checks.items()}
    rules = {name for name, text in texts.items() if _REMOTE.search(text)}
    while more := {
        name
        for name, text in texts.items()
        if name not in rules and not rules.isdisjoint(REFERENCE.findall(text))
    }:
        rules |= more
    return frozenset(rules)
