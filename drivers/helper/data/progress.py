# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work on bytes takes as long as it takes: what is bounded is the time without any.

Such a verb says now and then how far it is, in frames before its answer. So its client
waits for as long as it goes on, and work whose client has gone away ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Takes the bytes that the last step has done. Raises when the time is over.
Clock = Callable[[int], None]

#: Tells the client how many bytes are done. OSError when it has gone away.
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Long:
    """A verb on bytes. Its timeout bounds the time in which none of them is done."""

    verb: Callable[[Mapping[str, Any], float, Report], Any]

    def __call__(
        self,
        given: Mapping[str, Any],
        seconds: float,
        report: Report = lambda done: None,
    ) -> Any:
        return self.verb(given, seconds, report)
