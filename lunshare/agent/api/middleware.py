# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every request passes before its route is searched: its origin, its identity,
its microversion, and the project in its path.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import falcon

from lunshare.agent import request_scope
from lunshare.agent.api import faults, microversions, routes
from lunshare.agent.api.access import identity
from lunshare.agent.api.access.identity import Identity
from lunshare.agent.api.access.origins import Origins
from lunshare.agent.api.access_log import AccessLog, Measured
from lunshare.agent.api.exchange import Version
from lunshare.agent.api.requests import bodies
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import RequestContext

_API = "/v3/"
#: A method of HTTP that no route has.
_NO_METHOD = "TRACE"
_NO_CONTEXT = RequestContext(user_id="", project_id="", is_admin=False, request_id="")


class RequestState:
    """What is known of a request before its route: falcon's ``req.context``."""

    def __init__(self) -> None:
        self.request_id = ""
        self.ctx: RequestContext = _NO_CONTEXT
        self.version: Version | None = None
        self.project = ""


class ApiRequest(falcon.Request):
    """falcon's request with a RequestState."""

    context_type = RequestState
    context: RequestState  # type: ignore[assignment]


class Middleware:
    """What every request passes before its route is searched, and after."""

    def __init__(
        self,
        settings: ApiSettings,
        is_admin: Callable[[RequestContext], bool],
        measured: Measured,
    ) -> None:
        self._identity = Identity(settings, is_admin)
        self._origins = Origins(*settings.names)
        self._access_log = AccessLog(measured, routes.HEALTH)

    def process_request(self, req: ApiRequest, resp: falcon.Response) -> None:
        """Read identity and version; remove the project from the path."""
        req.context.request_id = request_scope.begin(req.env)
        if req.method not in falcon.COMBINED_METHODS:
            req.method = _NO_METHOD
        if "\0" in req.path or "%00" in req.query_string:
            raise Invalid("The URL has a NUL character: leave it out.")
        if req.path.startswith("//"):
            raise faults.no_such_path()  # falcon would ignore all of these but one
        if req.path not in routes.HEALTH and not identity.is_peer(req.env):
            self._origins.check(
                req.get_header("Host"),
                req.get_header("Origin"),
                req.get_header("Sec-Fetch-Site"),
            )
        if req.content_length or "HTTP_TRANSFER_ENCODING" in req.env:
            bodies.check_type(req.content_type)
        if req.path == routes.METRICS[0]:
            req.path = routes.METRICS[1]
        if req.path.startswith(_API):
            self._enter(req, req.context)

    def _enter(self, req: ApiRequest, state: RequestState) -> None:
        path, project = routes.without_project(req.path)
        project = project and unquoted(project)
        if project == "":
            raise faults.no_such_path()
        state.version = microversions.negotiate(req.get_header(microversions.HEADER))
        state.ctx = self._identity.context(req, project, state.request_id)
        req.env[request_scope.PROVEN] = self._identity.proof(req, state.ctx.user_id)
        state.project = "" if project is None else f"/{quote(project, safe='')}"
        req.path = path

    def process_resource(
        self,
        req: ApiRequest,
        resp: falcon.Response,
        resource: object,
        params: dict[str, str],
    ) -> None:
        """Unquote the names of the path.

        Refuse an item without an id, whose path falcon takes for the collection.
        """
        params.update({key: unquoted(text) for key, text in params.items()})
        if (
            req.env["PATH_INFO"].endswith("/")
            and req.uri_template in routes.COLLECTIONS
        ):
            raise faults.no_such_path()

    def process_response(
        self, req: ApiRequest, resp: falcon.Response, resource: object, ok: bool
    ) -> None:
        """Set the headers that every answer has."""
        state = req.context
        resp.set_header("x-openstack-request-id", state.request_id)
        resp.set_header("X-Compute-Request-Id", state.request_id)
        resp.set_header("Vary", microversions.HEADER)
        if state.version is not None:
            version = f"volume {microversions.text(state.version)}"
            resp.set_header(microversions.HEADER, version)
        self._note(req, resp, state)
        request_scope.end()

    def _note(
        self, req: ApiRequest, resp: falcon.Response, state: RequestState
    ) -> None:
        size = 0 if req.method == "HEAD" else len(resp.data or b"")
        status, ident = resp.status_code, state.request_id
        self._access_log.note(req, status, size, state.ctx, ident)


def unquoted(name: str) -> str:
    """Return a name of a path without the quoting that the HTTP server has left."""
    return name.replace("%2F", "/").replace("%25", "%")
