# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of firewall.*, checked before they are carried out.

Their values become a text that root gives to nftables, so each one is read as what it
is (an address, a network, a port), and written anew. No text of the client is in it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import Portal
from lunshare.helper import forms, portal_forms
from lunshare.helper.firewall.portal_rules import Address, Doors, Network

#: Addresses of hosts, and networks, of one backend. A client of the API names an
#: address in each attachment, and a node has at most so many of these.
MAX_ADDRESSES, MAX_NETWORKS = 100_000, 256
_NAME = re.compile(r"[!-~]{1,64}")
_NUMBERS = re.compile("[0-9a-fA-F:./]{2,64}")
_BACKEND = forms.text(_NAME, "give 1 to 64 ASCII characters without blanks")
_TEXT = forms.text(_NUMBERS, "give an IPv4 or IPv6 address")


def _address(name: str, given: object) -> Address:
    try:
        return ipaddress.ip_address(_TEXT(name, given))
    except ValueError:
        raise InvalidValue(name, given, "give an IPv4 or IPv6 address") from None


def _network(name: str, given: object) -> Network:
    try:
        return ipaddress.ip_network(_TEXT(name, given))
    except ValueError:
        remedy = "give a network such as 192.0.2.0/24, without bits behind its prefix"
        raise InvalidValue(name, given, remedy) from None


def _doors(
    *,
    backend: str,
    portals: tuple[Portal, ...],
    addresses: tuple[Address, ...],
    networks: tuple[Network, ...],
) -> Doors:
    merged: list[Network] = []
    for kind in (ipaddress.IPv4Network, ipaddress.IPv6Network):
        same = [network for network in networks if isinstance(network, kind)]
        merged += ipaddress.collapse_addresses(same)  # type: ignore[type-var]
    return Doors(backend, portals, frozenset(addresses), tuple(merged))


_WANTED = forms.record(
    _doors,
    backend=_BACKEND,
    portals=portal_forms.portals,
    addresses=forms.many(_address, MAX_ADDRESSES),
    networks=forms.many(_network, MAX_NETWORKS),
)
_SOME = forms.record(
    lambda backend, wanted, unwanted: (backend, wanted, unwanted),
    backend=_BACKEND,
    wanted=forms.many(_address, MAX_ADDRESSES),
    unwanted=forms.many(_address, MAX_ADDRESSES),
)
_NAMED = forms.record(lambda backend: backend, backend=_BACKEND)


def doors(arguments: Mapping[str, Any]) -> Doors:
    """Check the arguments of firewall.apply."""
    return _WANTED("", arguments)


def some_addresses(
    arguments: Mapping[str, Any],
) -> tuple[str, tuple[Address, ...], tuple[Address, ...]]:
    """Check the arguments of firewall.admit: a backend, who is wanted, who is not."""
    return _SOME("", arguments)


def backend(arguments: Mapping[str, Any]) -> str:
    """Check the argument of firewall.observe and of firewall.remove."""
    return str(_NAMED("", arguments))
