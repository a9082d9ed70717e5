# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Verbs of drivers that are repeated when the root helper ended in the middle.

What it had begun may go on: so not the command is repeated but the verb, which looks
first, and whose looks wait for what goes on (lunshare.drivers.helper.disk_locks).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lunshare.drivers.errors import Interrupted

_P = ParamSpec("_P")
_T = TypeVar("_T")


def repeats(verb: Callable[_P, _T]) -> Callable[_P, _T]:
    """A verb that may be repeated, and is, once.

    :raises Interrupted: the helper ended again.
    """

    @functools.wraps(verb)
    def again(*given: _P.args, **named: _P.kwargs) -> _T:
        try:
            return verb(*given, **named)
        except Interrupted:
            return verb(*given, **named)

    return again
