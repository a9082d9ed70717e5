# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The form of a backend's portals, in the requests of lio.* and of firewall.*."""

from __future__ import annotations

import functools
import re

import orjson

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import Portal
from lunshare.helper import forms

#: More addresses than any node has.
MAX_PORTALS = 16
# Without a scope id (fe80::1%eth0), which is the name of an interface.
_ADDRESS = re.compile("[0-9a-fA-F:.]+")
# Root's portal below 1024 would be in the place of another service, such as ssh.
_FIRST_OF_USERS, _SYSTEM_PORT = 1024, 860


def _port(name: str, given: object) -> int:
    """A port that any user may have, or the system port of iSCSI (RFC 7143, 14)."""
    port = forms.integer(1, 65535)(name, given)
    if port < _FIRST_OF_USERS and port != _SYSTEM_PORT:
        raise InvalidValue(name, port, f"give {_SYSTEM_PORT}, or 1024 to 65535")
    return port


def portals(name: str, given: object) -> tuple[Portal, ...]:
    """A list of portals. A node has one or two such lists, so checked ones are kept."""
    try:
        text = orjson.dumps(given)
    except TypeError:  # deeper than 254 levels, which orjson reads and does not write
        return _PORTALS(name, given)
    return _checked_portals(name, text)


@functools.lru_cache(maxsize=16)
def _checked_portals(name: str, text: bytes) -> tuple[Portal, ...]:
    return _PORTALS(name, orjson.loads(text))


_PORTAL = forms.record(
    Portal, address=forms.text(_ADDRESS, "give an IPv4 or IPv6 address"), port=_port
)
_PORTALS = forms.many(_PORTAL, MAX_PORTALS)
