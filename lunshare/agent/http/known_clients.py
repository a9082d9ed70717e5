# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which clients have proven who they are, and so do not queue behind strangers.

It only decides in which queue a request waits. Each request is still checked.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Mapping
from typing import Any

from cachetools import TTLCache

_SECONDS = 300.0  # after a request until a client is a stranger again
_MOST = 10_000  # clients; one more replaces the one that was seen first
_PROOFS = ("HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN")


class KnownClients:
    """The proofs of those clients, as keyed hashes. One thread at a time may use it."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._names: TTLCache[bytes, bool] = TTLCache(_MOST, _SECONDS, time.monotonic)

    def name(self, environ: Mapping[str, Any]) -> bytes:
        """Return the hash of what a request has to prove its identity."""
        text = "\0".join(environ.get(proof, "") for proof in _PROOFS)
        data = text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, data, "sha256")

    def has(self, name: bytes) -> bool:
        """Return whether the client is known."""
        return name in self._names

    def add(self, name: bytes) -> None:
        """Know this client."""
        self._names[name] = True
