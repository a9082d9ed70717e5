# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work on bytes may take hours. Its time limit is for the time without progress.

Such a verb sends its progress in frames before its answer, so its client waits as long
as there is progress. When the client has disconnected, the work ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Called with the bytes that the last step has done. Raises when the time is over.
Clock = Callable[[int], None]

#: Sends the bytes done so far to the client. OSError when it has disconnected.
Report = Callable[[int], None]


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
