# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The identity of a client. With noauth everyone is admin; the token only names a
project."""

from __future__ import annotations

from lunshare.agent.errors import Invalid
from lunshare.agent.records import RequestContext

_NAME_MAX = 255
_DEFAULT_USER = "admin"


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
        raise Invalid("Malformed request url: its project is not that of the token.")
    project = project or path_project or default_project
    user = user or _DEFAULT_USER
    if not all(len(n) <= _NAME_MAX and n.isprintable() for n in (user, project)):
        raise Invalid(
            f"User and project must be at most {_NAME_MAX} printable characters each."
        )
    return RequestContext(
        user_id=user, project_id=project, is_admin=True, request_id=request_id
    )
