# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From a WSGI request to a handler and back: who asks, which version, which route.

falcon reads the request and finds the route; all that is Block Storage's own
(projects in the path, microversions, error bodies) is here and in the modules
below. A handler never sees falcon.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import falcon

from agent.api import bodies, faults, identity, microversions, routes
from agent.api.exchange import Answer, Call, Version
from agent.api.settings import ApiSettings
from agent.errors import Invalid
from agent.records import Context
from agent.service.services import Services

__all__ = ["ApiSettings", "build_app"]

Request = falcon.Request
Response = falcon.Response

_API = "/v3/"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_JSON = "application/json"


def build_app(services: Services, settings: ApiSettings) -> Callable[..., Any]:
    """The WSGI application over these services."""
    front = Front(settings)
    app = falcon.App(middleware=[front], media_type=_JSON)
    app.req_options.strip_url_path_trailing_slash = True
    app.add_error_handler(Exception, front.failed)
    app.add_error_handler(falcon.HTTPError, front.refused)
    for path, methods in routes.by_path().items():
        app.add_route(path, Resource(services, settings, methods))
    return app


class Front:
    """What happens to every request, before its route is looked for and after."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings

    def process_request(self, req: Request, resp: Response) -> None:
        """Say who asks in which version, and take the project out of the path."""
        req.context.request_id = f"req-{uuid.uuid4()}"
        if req.method not in _METHODS:
            raise faults.Fault(405, f"The method is not one of {sorted(_METHODS)}.")
        if "\0" in req.path or "%00" in req.query_string:
            raise Invalid("The URL holds a NUL character: leave it out.")
        project = self._enter(req) if req.path.startswith(_API) else None
        req.context.project = "" if project is None else f"/{project}"
