# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who sends a request: the context of one request, from what proves an identity.

The kernel identifies the client of a unix socket; anybody else proves its identity
as ``auth_strategy`` says. Only this module creates a RequestContext of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from lunshare.agent.api.access.keystone import REFUSED
from lunshare.agent.api.access.passwords import Passwords
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import RequestContext
from lunshare.agent.request_scope import Credential
from lunshare.agent.users_file import User

_NAME_MAX = 255
_DEFAULT_USER = "admin"
_EVERY_ROLE = ("admin", "member", "reader")
#: The roles that a role includes, as in Keystone.
_IMPLIED = {"admin": ("member", "reader"), "member": ("reader",)}
#: Set by the HTTP server from the kernel's answer, for a unix socket alone.
_PEER = "X_REMOTE_UID"
#: Set by keystonemiddleware when it has accepted the token. No header can set it.
_ACCEPTED = "keystone.token_info"
#: What proves an identity, by ``auth_strategy``.
_HEADERS = {"http_basic": "HTTP_AUTHORIZATION", "keystone": "HTTP_X_AUTH_TOKEN"}
_LATER = {"Retry-After": "5"}


class ClientRequest(Protocol):
    """What shows who sends a request."""

    env: dict[str, Any]

    def get_header(self, name: str) -> str | None:
        """Return a header, or None."""


class Identity:
    """Creates the context of each request."""

    def __init__(
        self, settings: ApiSettings, is_admin: Callable[[RequestContext], bool]
    ) -> None:
        """``is_admin``: whether the policy makes a user an administrator.

        :raises StartupError: the file of users cannot be used.
        """
        self._is_admin = is_admin
        self._strategy, self._default = settings.auth_strategy, settings.default_project
        self._passwords = None
        if self._strategy == "http_basic":
            self._passwords = Passwords(settings.users_file, settings.password_checks)
        self._challenge = {"WWW-Authenticate": f'Keystone uri="{settings.auth_url}"'}

    def context(
        self, req: ClientRequest, project: str | None, ident: str
    ) -> RequestContext:
        """Return who sends this request; ``project`` is that of its path, or None.

        :raises Fault: 401, the identity is not proven; 403, it has no project.
        :raises Invalid: path and identity are of different projects.
        """
        _check_names(project or "")
        if self._strategy == "noauth" or _PEER in req.env:
            token = req.get_header("X-Auth-Token")
            context = noauth(token, project, self._default, ident)
            return of_peer(context, req.env.get(_PEER))
        if self._strategy == "http_basic" and self._passwords is not None:
            user = self._passwords.user(req.get_header("Authorization"))
            return self._with_rights(basic(user, project, self._default, ident))
        if self._strategy == "keystone" and _is_accepted(req.env):
            return self._with_rights(keystone(req.env, project, ident), project)
        if req.env.get(REFUSED) == 503:
            raise Fault(503, "Keystone does not answer: try again.", _LATER)
        raise Fault(
            401, "The request needs a valid token of Keystone.", self._challenge
        )

    def proof(self, req: ClientRequest, user: str) -> Credential | None:
        """Return what proved who sends this request; None if the kernel did."""
        if _PEER in req.env:
            return None
        return Credential(user, _HEADERS.get(self._strategy, ""))

    def _with_rights(
        self, ctx: RequestContext, path_project: str | None = None
    ) -> RequestContext:
        """Return it with ``is_admin``. Without a project it must be an administrator.

        An administrator without a project may name one in the path.
        """
        context = replace(ctx, is_admin=self._is_admin(ctx))
        if not context.project_id and not context.is_admin:
            # A token of a domain or of the system. All such users would share what
            # they create, as if they were one project.
            raise Fault(403, "The token has no project: get a token of a project.")
        if not context.project_id and path_project:
            return replace(context, project_id=path_project)
        return context


def is_peer(env: Mapping[str, Any]) -> bool:
    """Return whether the client is a process at a unix socket, so no browser."""
    return _PEER in env


def noauth(
    token: str | None, path_project: str | None, default_project: str, request_id: str
) -> RequestContext:
    """Return the context of a client that needs no proof of its identity.

    A token "user:project" names both. Any other token is ignored; then the project
    is that of the path, or the default one.

    :raises Invalid: token and path name different projects, or a name is too long
        or not printable.
    """
    user, colon, project = (token or "").partition(":")
    if not colon:
        user = project = ""
    if project and path_project and project != path_project:
        raise _other_project()
    project = project or path_project or default_project
    user = user or _DEFAULT_USER
    _check_names(user, project)
    return RequestContext(
        user_id=user,
        project_id=project,
        is_admin=True,
        request_id=request_id,
        roles=_EVERY_ROLE,
    )


def of_peer(known: RequestContext, uid: str | None) -> RequestContext:
    """Return the context with the uid of a process as its user, if it has one."""
    if uid is None:
        return known
    return RequestContext(uid, known.project_id, True, known.request_id, known.roles)


def basic(
    user: User, path_project: str | None, default_project: str, request_id: str
) -> RequestContext:
    """Return the context of a user of the file; role admin may name a project.

    The policy decides later whether it is an administrator.

    :raises Invalid: the project of the path is not that of the user.
    """
    roles = _with_implied(user.roles)
    project = user.project or default_project
    if path_project and path_project != project:
        if "admin" not in roles:
            raise _other_project()
        project = path_project
    return RequestContext(
        user_id=user.name,
        project_id=project,
        is_admin=False,
        request_id=request_id,
        roles=roles,
        service_roles=tuple(role for role in roles if role == "service"),
    )


def keystone(
    env: Mapping[str, Any], path_project: str | None, request_id: str
) -> RequestContext:
    """Return the context of a token that keystonemiddleware has accepted.

    The policy decides later whether it is an administrator.

    :raises Invalid: the project of the path is not that of the token.
    """
    project = env.get("HTTP_X_PROJECT_ID") or ""  # None in a token of the system
    if project and path_project and project != path_project:
        raise _other_project()
    roles = _listed(env.get("HTTP_X_ROLES"))
    served = env.get("HTTP_X_SERVICE_IDENTITY_STATUS") == "Confirmed"
    return RequestContext(
        user_id=env.get("HTTP_X_USER_ID") or "",
        project_id=project,
        is_admin=False,
        request_id=request_id,
        roles=roles,
        service_roles=_listed(env.get("HTTP_X_SERVICE_ROLES")) if served else (),
        system_scope=env.get("HTTP_OPENSTACK_SYSTEM_SCOPE") or None,
    )


def _check_names(*names: str) -> None:
    if not all(len(name) <= _NAME_MAX and name.isprintable() for name in names):
        raise Invalid(
            f"User and project must be at most {_NAME_MAX} printable characters each."
        )


def _is_accepted(env: Mapping[str, Any]) -> bool:
    return _ACCEPTED in env and REFUSED not in env


def _listed(header: str | None) -> tuple[str, ...]:
    return tuple(role.lower() for role in (header or "").split(",") if role)


def _with_implied(roles: tuple[str, ...]) -> tuple[str, ...]:
    every = dict.fromkeys(roles)
    for role in roles:
        every.update(dict.fromkeys(_IMPLIED.get(role, ())))
    return tuple(every)


def _other_project() -> Invalid:
    return Invalid("Malformed request url: its project is not that of the token.")
