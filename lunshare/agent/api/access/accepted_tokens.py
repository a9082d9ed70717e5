# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who the tokens belong to that keystonemiddleware has accepted.

keystonemiddleware remembers what Keystone answers about a token, but reads that answer
again for each request: 0.35 of 0.78 ms of CPU (show of a volume, keystonemiddleware
13.0.1). So what it wrote into the environment of a request is written again for the
next one with the same token: not longer than the token is valid and its answer is
remembered, and only where a token alone decides.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cachetools import TLRUCache

#: The headers that keystonemiddleware writes begin so; those of a client are removed.
IDENTITY_HEADERS = (
    "HTTP_OPENSTACK_SYSTEM_SCOPE",
    "HTTP_X_DOMAIN_",
    "HTTP_X_IDENTITY_STATUS",
    "HTTP_X_IS_ADMIN_PROJECT",
    "HTTP_X_PROJECT_",
    "HTTP_X_ROLE",
    "HTTP_X_SERVICE_",
    "HTTP_X_TENANT",
    "HTTP_X_USER",
)
_TOKEN, _SERVICE_TOKEN = "HTTP_X_AUTH_TOKEN", "HTTP_X_SERVICE_TOKEN"
_ANSWER = "keystone.token_info"
_TOKENS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Accepted:
    """``until``: of time.monotonic(); ``expires``: of time.time()."""

    values: Mapping[str, Any]
    until: float
    expires: float


class AcceptedTokens:
    """The identities of accepted tokens. Any thread may use it."""

    def __init__(self) -> None:
        self._identities: TLRUCache[str, _Accepted] = TLRUCache(
            _TOKENS_MAX, _end, time.monotonic
        )
        self._lock = threading.Lock()

    def enter(self, environ: dict[str, Any]) -> bool:
        """Write the identity of a known token into the environment of a request.

        Returns False if keystonemiddleware must decide. Then nothing is changed.
        """
        if _SERVICE_TOKEN in environ:
            return False
        with self._lock:
            identity = self._identities.get(_name(environ))
        if identity is None or time.time() >= identity.expires:
            return False
        for key in _identity_of(environ):
            del environ[key]
        environ.update(identity.values)
        return True

    def remember(self, environ: Mapping[str, Any], until: float) -> None:
        """Remember an accepted token, as long as its answer is: ``until``."""
        token = environ[_ANSWER]["token"]
        if _SERVICE_TOKEN in environ or _TOKEN not in environ or _is_limited(token):
            return
        values = {key: environ[key] for key in (*_identity_of(environ), _ANSWER)}
        expires = datetime.fromisoformat(token["expires_at"]).timestamp()
        with self._lock:
            self._identities[_name(environ)] = _Accepted(values, until, expires)


def _end(_name: str, identity: _Accepted, _now: float) -> float:
    """Return until when an identity is remembered."""
    return identity.until


def _is_limited(token: Mapping[str, Any]) -> bool:
    """Return whether more than the token decides: the path, or a ticket of Kerberos."""
    return bool(token.get("application_credential") or token.get("bind"))


def _identity_of(environ: Mapping[str, Any]) -> list[str]:
    return [key for key in environ if key.startswith(IDENTITY_HEADERS)]


def _name(environ: Mapping[str, Any]) -> str:
    """Return the hash of the token: a token itself is not remembered longer."""
    token = environ.get(_TOKEN, "").encode("utf-8", "surrogatepass")
    return hashlib.sha256(token).hexdigest()
