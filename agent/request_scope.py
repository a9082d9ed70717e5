# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of requests: created here, and bound to the thread that works for one.

What no request has caused has an id too: each turn of a timer, each check.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from lunshare.drivers import request_ids


def new_id() -> str:
    """Return an id in the form of OpenStack."""
    return f"req-{uuid.uuid4()}"


def enter(ident: str) -> None:
    """Let this thread work for the request, until it enters another one."""
    request_ids.enter(ident)


def current() -> str:
    """Return the id of this thread's request, or a new one if it has none."""
    ident = request_ids.current()
    return new_id() if ident == request_ids.NONE else ident


@contextmanager
def scope(ident: str | None = None) -> Iterator[None]:
    """Let this thread work for the request in the block; None is a new id."""
    with request_ids.of(ident or new_id()):
        yield
