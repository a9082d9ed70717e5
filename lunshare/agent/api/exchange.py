# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The request and the answer of a handler. Handlers use no HTTP framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.model.records import RequestContext
from lunshare.agent.service.services import Services

Version = tuple[int, int]


@dataclass(slots=True)
class Call:
    """One request.

    Its URL is ``root`` (scheme and host), /v3, ``project`` ("/<id>", or "" if the
    client left it out) and ``path``. ``args`` are the variables of the path.
    ``body()`` reads and parses the JSON, and raises the errors of
    lunshare.agent.api.requests.bodies. ``allows(rule)`` says whether a further rule of
    lunshare.agent.api.policies allows more than the rule of the route does, and
    ``shows(rule)`` whether it allows a part of the answer.
    ``if_match`` is the header If-Match.
    """

    services: Services
    settings: ApiSettings
    ctx: RequestContext
    version: Version
    root: str
    project: str
    path: str
    query: Mapping[str, str]
    args: Mapping[str, str]
    body: Callable[[], Any]
    allows: Callable[[str], bool]
    shows: Callable[[str], bool]
    if_match: str | None = None

    @property
    def base(self) -> str:
        """Return the start of every URL of this client."""
        return f"{self.root}/v3{self.project}"


@dataclass(slots=True)
class Answer:
    """The answer to a request. ``body`` becomes JSON, bytes are sent; None is none."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """Return the bytes of the body."""
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


Handler = Callable[[Call], Answer]
