# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A CHAP secret for each host of a volume, from one key for each volume.

Cinder stores one ``provider_auth`` for each volume, and every host would share it. Here
it is a key that no host gets: each host's user and secret are computed from the key and
the host's name, so a host cannot compute those of another. Nothing else is stored.

Drivers of Cinder itself store ``CHAP USER SECRET`` for all hosts of a volume. A volume
that comes from such a driver has that until its last host is detached.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

from lunshare.drivers import chap_text
from lunshare.drivers.values import Auth

_KEY_BYTES = 32
_STORED = re.compile("lunshare ([0-9a-f]{64})")
_SHARED = re.compile("CHAP ([!-~]+) ([!-~]+)")


def new_provider_auth() -> str:
    """Return a value of ``provider_auth`` with a new random key."""
    return f"lunshare {secrets.token_hex(_KEY_BYTES)}"


def is_provider_auth(stored: str | None) -> bool:
    """Whether ``provider_auth`` has a key of ours."""
    return _STORED.fullmatch(stored or "") is not None


def of_host(stored: str | None, initiator: str) -> Auth | None:
    """Return the credentials of a host; None if the volume has none yet."""
    if shared := _SHARED.fullmatch(stored or ""):
        return Auth(shared[1], shared[2])
    match = _STORED.fullmatch(stored or "")
    if match is None:
        return None
    key = bytes.fromhex(match[1])
    return Auth(
        _text(key, "user", initiator, chap_text.USERNAME_LENGTH),
        _text(key, "secret", initiator, chap_text.SECRET_LENGTH),
    )


def of_connection(connection_info: Mapping[str, Any]) -> Auth | None:
    """Return the credentials that a host got when it was attached, or None."""
    user = connection_info.get("auth_username")
    secret = connection_info.get("auth_password")
    return Auth(str(user), str(secret)) if user and secret else None


def _text(key: bytes, purpose: str, initiator: str, length: int) -> str:
    """Return a letter, then letters and digits, of one keyed digest."""
    message = f"{purpose} {initiator}".encode()
    number = int.from_bytes(hmac.new(key, message, hashlib.sha256).digest())
    return chap_text.text(number, length)
