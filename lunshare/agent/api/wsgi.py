# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From a WSGI request to a handler and back.

falcon reads the request and finds the route. The special parts of Block Storage
(projects in the path, microversions, error bodies) are in lunshare.agent.api.middleware
and in the modules below. A handler never uses falcon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import falcon

from lunshare.agent.api import faults, microversions, routes
from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.middleware import ApiRequest, Middleware
from lunshare.agent.api.missing_features import fault_of
from lunshare.agent.api.requests import bodies
from lunshare.agent.api.routes import Route
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.service.services import Services

__all__ = ["ApiSettings", "build_app"]

_JSON = "application/json"


def build_app(
    services: Services, settings: ApiSettings, rules: AccessRules
) -> Callable[..., Any]:
    """Return the WSGI application over these services. May raise StartupError."""
    every = Middleware(settings, rules.is_admin, services.recorded.request)
    app = falcon.App(middleware=[every], request_type=ApiRequest, media_type=_JSON)
    app.req_options.strip_url_path_trailing_slash = True
    app.add_error_handler(Exception, _failed)
    app.add_error_handler(falcon.HTTPError, _refused)
    for path, methods in routes.by_path().items():
        app.add_route(path, Resource(services, settings, rules, methods))
    return app


class Resource:
    """One path of the table; falcon calls ``on_<method>``."""

    def __init__(
        self,
        services: Services,
        settings: ApiSettings,
        rules: AccessRules,
        methods: Mapping[str, Route],
    ) -> None:
        self._services, self._settings, self._rules = services, settings, rules
        self._root = (settings.public_endpoint or "").rstrip("/")
        self._allowed = ", ".join(sorted(methods))
        for method in falcon.COMBINED_METHODS:
            route = methods.get(method)
            responder = partial(self._answer, route) if route else self._refuse
            setattr(self, f"on_{method.lower()}", responder)

    def _answer(
        self, route: Route, req: ApiRequest, resp: falcon.Response, **args: str
    ) -> None:
        state = req.context
        version = state.version or microversions.MIN
        is_known = state.version is not None  # so the middleware asked who it is
        if version < route.since or not (is_known or route.path in routes.PUBLIC):
            raise faults.no_such_path()
        body = _Body(req, self._settings.max_body)
        if is_known:
            self._rules.require_route(route, state.ctx, body)
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
            body=body,
            allows=partial(self._rules.allows, ctx=state.ctx),
            shows=partial(self._rules.shows, ctx=state.ctx),
            if_match=req.get_header("If-Match"),
        )
        _send(resp, route.handler(call))

    def _refuse(self, req: ApiRequest, resp: falcon.Response, **args: str) -> None:
        use = f"Use one of {self._allowed} here."
        raise fault_of(req.path) or Fault(405, use, {"Allow": self._allowed})


def _query(req: ApiRequest) -> dict[str, str]:
    """Return each parameter once. The last one of a repeated parameter counts."""
    return {
        key: value if isinstance(value, str) else value[-1]
        for key, value in req.params.items()
    }


class _Body:
    """Reads and parses the body at its first call.

    functools.cache would create a function and its cache for each request.
    """

    __slots__ = ("_limit", "_req", "_values")

    def __init__(self, req: ApiRequest, limit: int) -> None:
        self._req, self._limit = req, limit
        self._values: list[Any] = []

    def __call__(self) -> Any:
        """Return the JSON of the request."""
        if not self._values:
            self._values.append(_body(self._req, self._limit))
        return self._values[0]


def _body(req: ApiRequest, limit: int) -> Any:
    """Return the JSON of the request. Without chunks, Content-Length is its size."""
    chunked = req.env.get("wsgi.input_terminated", False)
    length = None if chunked else req.content_length or 0
    return bodies.parse(bodies.read(req.env["wsgi.input"], length, limit))


def _send(resp: falcon.Response, answer: Answer) -> None:
    resp.status = answer.status
    resp.set_headers(answer.headers)
    if answer.body is not None:
        resp.data = answer.data


def _failed(
    req: ApiRequest, resp: falcon.Response, error: Exception, args: Mapping[str, str]
) -> None:
    _send(resp, faults.answer(error, req.context.request_id))


def _refused(
    req: ApiRequest,
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
