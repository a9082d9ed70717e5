# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A CHAP secret for each host of a volume, from one key for each volume.

Cinder stores one ``provider_auth`` for each volume, and every host would share it. Here
it is a key that no host gets: each host's user and secret are computed from the key and
the host's name, so a host cannot compute those of another. Nothing else is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from lunshare.drivers import chap_text
from lunshare.drivers.values import Auth

_KEY_BYTES = 32
_STORED = re.compile("lunshare ([0-9a-f]{64})")


def new_provider_auth() -> str:
    """Return a value of ``provider_auth`` with a new random key."""
    return f"lunshare {secrets.token_hex(_KEY_BYTES)}"


def is_provider_auth(stored: str | None) -> bool:
    """Whether ``provider_auth`` has a key of ours."""
    return _STORED.fullmatch(stored or "") is not None


def of_host(stored: str | None, initiator: str) -> Auth | None:
    """Return the credentials of a host; None if the volume has no key yet."""
    found = _STORED.fullmatch(stored or "")
    if found is None:
        return None
    key = bytes.fromhex(found[1])
    return Auth(
        _text(key, "user", initiator, chap_text.USERNAME_LENGTH),
        _text(key, "secret", initiator, chap_text.SECRET_LENGTH),
    )


def _text(key: bytes, purpose: str, initiator: str, length: int) -> str:
    """Return a letter, then letters and digits, of one keyed digest."""
    message = f"{purpose} {initiator}".encode()
    number = int.from_bytes(hmac.new(key, message, hashlib.sha256).digest())
    return chap_text.text(number, length)
