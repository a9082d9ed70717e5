# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Translate errors into HTTP answers; nothing else does.

The body has one key, named after the status. Keys and statuses are those of the
Block Storage API, where missing space is 413 with ``retryAfter``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lunshare.agent.api.exchange import Answer
from lunshare.agent.model.errors import (
    AgentError,
    BackendFailed,
    BackendUnavailable,
    Busy,
    Conflict,
    DatabaseFailed,
    Exhausted,
    Forbidden,
    Invalid,
    NotFound,
)

LOG = logging.getLogger(__name__)

#: Characters of the longest sentence.
MESSAGE_MAX = 400

KEYS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    501: "notImplemented",
    503: "serviceUnavailable",
}

#: The key of every other status.
OTHER_KEY = "computeFault"

# The most specific class of the error decides. Retry-After is in seconds.
FAMILIES: Mapping[type, tuple[int, str | None]] = {
    Invalid: (400, None),
    Forbidden: (403, None),
    NotFound: (404, None),
    Busy: (409, "1"),
    Conflict: (409, None),
    Exhausted: (413, "0"),
    BackendUnavailable: (503, "5"),
    BackendFailed: (500, None),
}


class Fault(AgentError):
    """An error of HTTP alone: unknown path, method, version or media type."""

    code = "http"

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


def no_such_path() -> Fault:
    """Return the 404 for a URL that does not exist at this microversion."""
    return Fault(404, "The resource could not be found.")


def family_of(error: type) -> type | None:
    """Return the class in ``FAMILIES`` that an error belongs to."""
    return next((base for base in error.__mro__ if base in FAMILIES), None)


def answer(error: Exception, request_id: str) -> Answer:
    """Return the answer to a request that ended in ``error``.

    An unexpected error is logged with its traceback; the client gets one sentence.
    """
    if isinstance(error, Fault):
        return _rendered(error.status, error.message, error.headers)
    family = family_of(type(error))
    if family and isinstance(error, AgentError):
        status, retry = FAMILIES[family]
        if status >= 500:
            LOG.error("[%s] FAILED %s: %s", request_id, error.code, error.message)
        headers = {} if retry is None else {"Retry-After": retry}
        return _rendered(status, _sentence(error, request_id), headers)
    LOG.error("[%s] CRASHED", request_id, exc_info=error)
    return _rendered(
        500, f"The request failed in an unexpected way; the log has it as {request_id}."
    )


def _sentence(error: AgentError, request_id: str) -> str:
    """Return what a client may know. Where the database is, only the log says."""
    if isinstance(error, DatabaseFailed):
        return (
            "The database of this node cannot be used, and nothing was confirmed: try"
            f" again later, or tell an operator; the log has it as {request_id}."
        )
    return error.message


def _rendered(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> Answer:
    if len(message) > MESSAGE_MAX:
        message = message[: MESSAGE_MAX - 3] + "..."
    body: dict[str, object] = {"code": status, "message": message}
    if status == 413 and headers and "Retry-After" in headers:
        body["retryAfter"] = headers["Retry-After"]
    return Answer(status, {KEYS.get(status, OTHER_KEY): body}, headers or {})
