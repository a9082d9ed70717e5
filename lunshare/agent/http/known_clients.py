# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which clients have proven who they are, and so do not queue behind strangers.

It only decides in which queue a request waits. Each request is still checked.
"""

from __future__ import annotations

import hmac
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from cachetools import TTLCache

from lunshare.agent.request_scope import Credential

_SECONDS = 300.0  # after a request until a client is a stranger again
_MOST = 10_000  # clients; one more replaces the one that was seen first
_MOST_OF_USER = 100  # of them; one more replaces one of the same user
#: Headers that may prove an identity; "" where none is needed.
_PROOFS = ("HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN", "")


class KnownClients:
    """The proofs of those clients, as keyed hashes. One thread at a time may use it.

    A header has many spellings, and a user may have many tokens. So a user has a
    limited number of places, and can take none of another one.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._names: TTLCache[bytes, str] = TTLCache(_MOST, _SECONDS, time.monotonic)
        self._of_users: TTLCache[str, deque[bytes]] = TTLCache(
            _MOST, _SECONDS, time.monotonic
        )

    def user(self, environ: Mapping[str, Any]) -> str | None:
        """Return whose proof a request has that was accepted before, or None."""
        users = (self._names.get(self._name(environ, header)) for header in _PROOFS)
        return next((user for user in users if user is not None), None)

    def add(self, environ: Mapping[str, Any], proof: Credential) -> None:
        """Know the client by the header that proved its identity, and by no other."""
        name = self._name(environ, proof.header)
        own = self._of_users.get(proof.user, deque[bytes]())
        if name not in self._names:
            if len(own) == _MOST_OF_USER:
                self._names.pop(own.popleft(), None)
            own.append(name)
        self._names[name], self._of_users[proof.user] = proof.user, own

    def _name(self, environ: Mapping[str, Any], header: str) -> bytes:
        text = f"{header}\0{environ.get(header, '')}"
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")
