# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Retry a verb of a driver when the root helper ended in the middle of it.

A command that the helper had started may still run. So the complete verb is retried,
not the command: a verb first reads the state, and its queries wait for a command that
still runs (lunshare.helper.disk_locks).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lunshare.drivers.errors import Interrupted

_P = ParamSpec("_P")
_T = TypeVar("_T")


def retried_once(verb: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a verb that may be retried, so that it is, once.

    :raises Interrupted: the helper ended again.
    """

    @functools.wraps(verb)
    def again(*given: _P.args, **named: _P.kwargs) -> _T:
        try:
            return verb(*given, **named)
        except Interrupted:
            return verb(*given, **named)

    return again
