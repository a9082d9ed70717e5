# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of requests: created here, and bound to the thread that works for one.

What no request has caused has an id too: each turn of a timer, each check. Both keys
are in the environment of WSGI; no header can set them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from lunshare.drivers import request_ids

#: When the server had the complete request, of time.perf_counter().
BEGAN = "lunshare.began"
#: In the environment of a request: the Credential of its client's identity, if a header
#: was one. No header can set it.
PROVEN = "lunshare.proven"
_ID = "lunshare.request_id"
_BEGAN: ContextVar[float | None] = ContextVar("request_began", default=None)


class Credential(NamedTuple):
    """Who has proven an identity, and with which header of WSGI's environment.

    ``header`` is "" where no proof is needed.
    """

    user: str
    header: str


def new_id() -> str:
    """Return an id in the form of OpenStack."""
    return f"req-{uuid.uuid4()}"


def begin(environ: dict[str, Any]) -> str:
    """Return the id of an HTTP request, for which this thread works until ``end``.

    The first caller creates the id. Later callers get the same one.
    """
    if _ID not in environ:
        environ[_ID] = new_id()
        _BEGAN.set(environ.setdefault(BEGAN, time.perf_counter()))
        request_ids.enter(environ[_ID])
    return str(environ[_ID])


def end() -> None:
    """Let this thread work for no request."""
    request_ids.enter(request_ids.NONE)
    _BEGAN.set(None)


def age() -> float:
    """Return the seconds since this thread's request was complete; 0 if it has none."""
    began = _BEGAN.get()
    return 0.0 if began is None else time.perf_counter() - began


def current() -> str:
    """Return the id of this thread's request, or a new one if it has none."""
    ident = request_ids.current()
    return new_id() if ident == request_ids.NONE else ident


@contextmanager
def scope(ident: str | None = None) -> Iterator[None]:
    """Let this thread work for the request in the block; None is a new id."""
    with request_ids.scope(ident or new_id()):
        yield
