# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A line of the log and a measurement for every request that was answered.

The line has the path without its query, and no header and no body. What a client chose
is in it percent-encoded, so a client cannot write a line or a field of its own.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

from lunshare.agent.model.records import RequestContext
from lunshare.agent.request_scope import BEGAN

#: At INFO a line for each request; default_log_levels can raise it to WARN.
LOG = logging.getLogger("lunshare.agent.api.access")

#: Gets method, template of the route, status code and seconds.
Measured = Callable[[str, str, int, float], object]

_GLOBAL_ID = re.compile(r"req-[A-Za-z0-9-]{1,64}")
_MAX_SHOWN = 512  # characters of a path
_NO_ROUTE = "none"
_LINE = (
    "request: method=%s path=%s status=%s bytes=%s ms=%.1f user=%s project=%s"
    " client=%s request_id=%s global_id=%s"
)
_SAFE = "/:@"
_PLAIN = re.compile("[A-Za-z0-9_.~/:@-]{1,512}")


class LoggedRequest(Protocol):
    """What the log reads of a request."""

    method: str
    uri_template: str | None
    env: dict[str, Any]

    def get_header(self, name: str) -> str | None:
        """Return a header, or None."""


class AccessLog:
    """Notes every answer."""

    def __init__(self, measured: Measured, quiet: frozenset[str]) -> None:
        """``quiet``: routes that are called all the time, and logged at DEBUG."""
        self._measured, self._quiet = measured, quiet

    def note(
        self,
        req: LoggedRequest,
        status: int,
        size: int,
        who: RequestContext,
        ident: str,
    ) -> None:
        """Note an answer with so many bytes of a body; ``ident`` is the request's."""
        seconds = time.perf_counter() - req.env[BEGAN]
        route = req.uri_template or _NO_ROUTE
        self._measured(req.method, route, status, seconds)
        level = logging.DEBUG if route in self._quiet else logging.INFO
        if LOG.isEnabledFor(level):
            values = (
                shown(req.env["REQUEST_METHOD"]),
                _path(req.env["PATH_INFO"]),
                status,
                size,
                seconds * 1000,
                shown(who.user_id),
                shown(who.project_id),
                shown(req.env.get("REMOTE_ADDR", "")),
                ident,
                _global_id(req.get_header("X-Openstack-Request-Id")),
            )
            # Not LOG.log, which searches the stack for the line that called it.
            record = LOG.makeRecord(LOG.name, level, __file__, 0, _LINE, values, None)
            LOG.handle(record)


def shown(text: str) -> str:
    """Return what a client chose as one word of a line; a hyphen if it is empty."""
    if _PLAIN.fullmatch(text):
        return text
    return quote(text[:_MAX_SHOWN], safe=_SAFE, errors="replace") or "-"


def _path(decoded: str) -> str:
    """Return PATH_INFO, whose characters WSGI uses for bytes (PEP 3333)."""
    if _PLAIN.fullmatch(decoded):
        return decoded
    # The HTTP server has left %2F and %25 as they were.
    return quote(decoded.encode("latin-1", "replace")[:_MAX_SHOWN], safe=f"{_SAFE}%")


def _global_id(header: str | None) -> str:
    """Return the id of the request in the client, which OpenStack calls global."""
    return header if header and _GLOBAL_ID.fullmatch(header) else "-"
