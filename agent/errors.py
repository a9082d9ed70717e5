# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the agent answers when it cannot do as asked.

Five families, by what the caller should do next. ``code`` never changes once
published; the sentence may. HTTP knows them in lunshare.agent.api.faults only.
"""

from __future__ import annotations


class AgentError(Exception):
    """Base of all: one sentence that names the field and what to do."""

    code = "agent-error"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message, self.fields = message, fields


class Invalid(AgentError):
    """The request is wrong as it stands. Change it."""

    code = "invalid"


class NotFound(AgentError):
    """There is no such thing, or not any more."""

    code = "not-found"

    def __init__(self, noun: str, ident: str) -> None:
        super().__init__(f"{noun} {ident} could not be found.", id=ident)
        self.noun, self.ident = noun, ident


class Conflict(AgentError):
    """It contradicts what is there. Change the one or the other, then try again."""

    code = "conflict"


class Busy(Conflict):
    """Something else is being done to the same thing. Try again shortly."""

    code = "busy"


class Exhausted(AgentError):
    """A limit or a pool is used up. Free something or ask for less."""

    code = "exhausted"


class BackendFailed(AgentError):
    """Storage did not do its part. The operator looks; a retry may help."""

    code = "backend-failed"


class BackendUnavailable(BackendFailed):
    """Storage cannot be reached or does not answer in time. Try again later."""

    code = "backend-unavailable"


class DatabaseFailed(BackendUnavailable):
    """The database cannot be read or written. Nothing was acknowledged."""

    code = "database-failed"


class StartupError(AgentError):
    """The daemon cannot start as configured. Mend it, then start again."""

    code = "startup"
