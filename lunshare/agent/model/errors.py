# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of the agent, by what the caller should do next.

``code`` does not change once it is published; the sentence may. Only
lunshare.agent.api.faults maps them to HTTP.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class AgentError(Exception):
    """The base of all: one sentence that names the field and what to do."""

    code = "agent-error"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message, self.fields = message, fields

    def begin_with(self, what: str) -> None:
        """Put before the sentence which of several things of a request it is about."""
        self.message = f"{what}: {self.message}"
        self.args = (self.message,)


class Invalid(AgentError):
    """The request is wrong as it stands. Change it."""

    code = "invalid"


class Forbidden(AgentError):
    """The policy does not allow it to this user. Ask an administrator."""

    code = "forbidden"

    def __init__(self, rule: str) -> None:
        super().__init__(f"Policy doesn't allow {rule} to be performed.", rule=rule)


class NotFound(AgentError):
    """It does not exist, or is deleted."""

    code = "not-found"

    def __init__(self, resource: str, ident: str) -> None:
        super().__init__(f"{resource} {ident} could not be found.", id=ident)
        self.resource, self.ident = resource, ident


def existing(value: T | None, resource: str, ident: str) -> T:
    """Return a value that is not None.

    :raises NotFound: it is None.
    """
    if value is None:
        raise NotFound(resource, ident)
    return value


class Conflict(AgentError):
    """It contradicts the present state. Change one of them, then try again."""

    code = "conflict"


class Busy(Conflict):
    """Another operation works on the same resource. Try again soon."""

    code = "busy"


class Exhausted(AgentError):
    """A limit or a pool is used up. Free some space or ask for less."""

    code = "exhausted"


class OverQuota(Exhausted):
    """A quota of the project does not allow it. Nothing was changed."""

    code = "over-quota"


class BackendFailed(AgentError):
    """The storage failed. An administrator must check; a retry may help."""

    code = "backend-failed"


class BackendUnavailable(BackendFailed):
    """The storage cannot be reached or does not answer in time. Try again later."""

    code = "backend-unavailable"


class DatabaseFailed(BackendUnavailable):
    """The database cannot be read or written. Nothing was confirmed."""

    code = "database-failed"


class StartupError(AgentError):
    """The daemon cannot start as configured. Fix that, then start again."""

    code = "startup"
