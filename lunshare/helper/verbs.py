# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Verbs that have to know their client: whether it still waits, and how far they are.

Work on bytes may take hours, and its time limit is for the time without progress. Such
a verb sends its progress in frames before its answer, so its client waits as long as
there is progress. When the client has disconnected, the work ends.

A change that is short runs to its end, but it does not start when its client has
disconnected while it waited. Its daemon has given up or was killed, and a later request
may have another intent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Called with the bytes that the last step has done. Raises when the time is over.
NoteProgress = Callable[[int], None]

#: Sends the bytes done so far to the client. OSError when it has disconnected.
Report = Callable[[int], None]

#: Whether the client has disconnected.
IsGone = Callable[[], bool]


def never_gone() -> bool:
    """The IsGone of a caller that waits for its answer in any case."""
    return False


@dataclass(frozen=True, slots=True)
class ChangeVerb:
    """A verb that changes something within its timeout, for a client that waits.

    :raises DeadlineExceeded: its client has disconnected; nothing was started.
    """

    verb: Callable[..., Any]

    def __call__(
        self, given: Mapping[str, Any], seconds: float, is_gone: IsGone = never_gone
    ) -> Any:
        return self.verb(given, seconds, is_gone=is_gone)


@dataclass(frozen=True, slots=True)
class LongVerb:
    """A verb on bytes. Its timeout is for the time without progress."""

    verb: Callable[[Mapping[str, Any], float, Report], Any]

    def __call__(
        self,
        given: Mapping[str, Any],
        seconds: float,
        report: Report = lambda done: None,
    ) -> Any:
        return self.verb(given, seconds, report)
