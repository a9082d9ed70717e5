# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The id of the request for which this thread works.

It is in each log line of daemon and helper that the request has caused. The daemon
creates it, and the client of the root helper sends it with every call.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from typing import Any

#: The form of an id. One of another form could write lines of its own into a log.
FORM = re.compile("[A-Za-z0-9._-]{1,64}")
#: The id of work that belongs to no request.
NONE = "-"

_ID: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default=NONE)


def current() -> str:
    """Return the id of this thread's request, or NONE."""
    return _ID.get()


def enter(ident: str) -> None:
    """Let this thread work for the request from now on; another form means NONE."""
    _ID.set(ident if FORM.fullmatch(ident) else NONE)


def suspend() -> Token[str]:
    """Let this thread work for no request, until ``resume`` with what this returns.

    For one whose calls have to be few: ``of`` is eight calls of functions.
    """
    return _ID.set(NONE)


def resume(before: Token[str]) -> None:
    """Let this thread work for the request for which it worked before ``suspend``."""
    _ID.reset(before)


@contextmanager
def scope(ident: str) -> Iterator[None]:
    """Let this thread work for the request in the block."""
    before = _ID.get()
    enter(ident)
    try:
        yield
    finally:
        _ID.set(before)


def inherited(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``work`` for the target of a thread: it works for the same request."""
    return functools.partial(contextvars.copy_context().run, work)


def add(record: logging.LogRecord) -> bool:
    """Give a log record the id; a filter of a logging handler."""
    record.request_id = current()
    return True
