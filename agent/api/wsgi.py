# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From a WSGI request to a handler and back: identity, version and route.

falcon reads the request and finds the route. The special parts of Block Storage
(projects in the path, microversions, error bodies) are here and in the modules
below. A handler never uses falcon.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import falcon
import orjson

from lunshare.agent.api import bodies, faults, identity, microversions, routes
from lunshare.agent.api.exchange import Answer, Call, Version
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.outside import fault_of
from lunshare.agent.api.routes import Route
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.errors import Invalid
from lunshare.agent.records import RequestContext
from lunshare.agent.service.services import Services

__all__ = ["ApiSettings", "build_app"]

_API = "/v3/"
_JSON = "application/json"
#: A method of HTTP that no route has.
_NO_METHOD = "TRACE"
_NO_CONTEXT = RequestContext(user_id="", project_id="", is_admin=False, request_id="")


class RequestState:
    """What is known of a request before its route: falcon's ``req.context``."""

    def __init__(self) -> None:
        self.request_id = f"req-{uuid.uuid4()}"
        self.ctx: RequestContext = _NO_CONTEXT
        self.version: Version | None = None
        self.project = ""


class Request(falcon.Request):
    """falcon's request with a RequestState."""

    context_type = RequestState
    context: RequestState  # type: ignore[assignment]


def build_app(services: Services, settings: ApiSettings) -> Callable[..., Any]:
    """Return the WSGI application over these services."""
    app = falcon.App(
        middleware=[Middleware(settings)], request_type=Request, media_type=_JSON
    )
    app.req_options.strip_url_path_trailing_slash = True
    app.add_error_handler(Exception, _failed)
    app.add_error_handler(falcon.HTTPError, _refused)
    for path, methods in routes.by_path().items():
        app.add_route(path, Resource(services, settings, methods))
    return app


class Middleware:
    """What every request passes before its route is searched, and after."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Read identity and version; remove the project from the path."""
        if req.method not in falcon.COMBINED_METHODS:
            req.method = _NO_METHOD
        if "\0" in req.path or "%00" in req.query_string:
            raise Invalid("The URL has a NUL character: leave it out.")
        if req.path.startswith(_API):
            self._enter(req, req.context)

    def _enter(self, req: Request, state: RequestState) -> None:
        path, project = routes.without_project(req.path)
        if project == "":
            raise faults.no_such_path()
        state.version = microversions.negotiate(req.get_header(microversions.HEADER))
        state.ctx = identity.noauth(
            req.get_header("X-Auth-Token"),
            project,
            self._settings.default_project,
            state.request_id,
        )
        state.project = "" if project is None else f"/{quote(project, safe='')}"
        req.path = path

    def process_resource(
        self, req: Request, resp: falcon.Response, resource: object, params: object
    ) -> None:
        """Refuse an item without an id, whose path falcon takes for the collection."""
        if (
            req.env["PATH_INFO"].endswith("/")
            and req.uri_template in routes.COLLECTIONS
        ):
            raise faults.no_such_path()

    def process_response(
        self, req: Request, resp: falcon.Response, resource: object, ok: bool
    ) -> None:
        """Set the headers that every answer has."""
        state = req.context
        resp.set_header("x-openstack-request-id", state.request_id)
        resp.set_header("X-Compute-Request-Id", state.request_id)
        resp.set_header("Vary", microversions.HEADER)
        if state.version is not None:
            version = f"volume {microversions.text(state.version)}"
            resp.set_header(microversions.HEADER, version)


class Resource:
    """One path of the table; falcon calls ``on_<method>``."""

    def __init__(
        self, services: Services, settings: ApiSettings, methods: Mapping[str, Route]
    ) -> None:
        self._services, self._settings = services, settings
        self._root = (settings.public_endpoint or "").rstrip("/")
        self._allowed = ", ".join(sorted(methods))
        for method in falcon.COMBINED_METHODS:
            route = methods.get(method)
            found = partial(self._answer, route) if route else self._refuse
            setattr(self, f"on_{method.lower()}", found)

    def _answer(
        self, route: Route, req: Request, resp: falcon.Response, **args: str
    ) -> None:
        state = req.context
        version = state.version or microversions.MIN
        if version < route.since:
            raise faults.no_such_path()
        call = Call(
            services=self._services,
            settings=self._settings,
            ctx=state.ctx,
            version=version,
            root=self._root or req.prefix,
            project=state.project,
            path=req.path.removeprefix("/v3"),
            query=_query(req),
            args=args,
            body=partial(_body, req, self._settings.max_body),
            if_match=req.get_header("If-Match"),
        )
        _send(resp, route.handler(call))

    def _refuse(self, req: Request, resp: falcon.Response, **args: str) -> None:
        use = f"Use one of {self._allowed} here."
        raise fault_of(req.path) or Fault(405, use, {"Allow": self._allowed})


def _query(req: Request) -> dict[str, str]:
    """Return each parameter once. The last one of a repeated parameter counts."""
    return {
        key: value if isinstance(value, str) else value[-1]
        for key, value in req.params.items()
    }


def _body(req: Request, limit: int) -> Any:
    """Return the JSON of the request. Without chunks, Content-Length is its size."""
    bodies.check_type(req.content_type)
    chunked = req.env.get("wsgi.input_terminated", False)
    length = None if chunked else req.content_length or 0
    return bodies.parse(bodies.read(req.env["wsgi.input"], length, limit))


def _send(resp: falcon.Response, answer: Answer) -> None:
    resp.status = answer.status
    resp.set_headers(answer.headers)
    if answer.body is not None:
        resp.data = orjson.dumps(answer.body)


def _failed(
    req: Request, resp: falcon.Response, error: Exception, args: Mapping[str, str]
) -> None:
    _send(resp, faults.answer(error, req.context.request_id))


def _refused(
    req: Request,
    resp: falcon.Response,
    error: falcon.HTTPError,
    args: Mapping[str, str],
) -> None:
    """Answer an error of falcon: a URL without a route, a header it cannot read."""
    if error.status_code == 404:
        fault = fault_of(req.path) or faults.no_such_path()
    else:
        fault = Fault(error.status_code, error.description or error.title or "")
    _failed(req, resp, fault, args)
