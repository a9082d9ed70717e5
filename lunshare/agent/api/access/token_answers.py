# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check what Keystone says about a token, before it is used and remembered.

A proxy, another service or a broken Keystone may answer 200 with any JSON. Only the
parts are checked that decide who somebody is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any


def answer_problem(answer: Any) -> str:
    """Return what is wrong with the answer, or ""."""
    token = answer.get("token") if isinstance(answer, Mapping) else None
    if not isinstance(token, Mapping):
        return "it has no token"
    return next((why for right, why in _checks(token) if not right), "")


def _checks(token: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    yield _is_time(token.get("expires_at")), "expires_at is not a time"
    yield _has_text(token.get("user"), "id"), "the user has no id"
    for scope in ("project", "domain"):
        if scope in token:
            yield _has_text(token[scope], "id"), f"the {scope} has no id"
    yield isinstance(token.get("system", {}), Mapping), "the system is not an object"
    roles = token.get("roles", [])
    yield isinstance(roles, list), "the roles are not a list"
    yield all(_has_text(role, "name") for role in roles), "a role has no name"


def _has_text(part: Any, key: str) -> bool:
    text = part.get(key) if isinstance(part, Mapping) else None
    return isinstance(text, str) and bool(text)


def _is_time(text: Any) -> bool:
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True
