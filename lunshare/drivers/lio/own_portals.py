# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Portals at addresses of this node."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import Portal


def own_portal(option: str, address: str, port: int) -> Portal:
    """Return the portal, on an address to which a host can log in.

    :raises InvalidValue: this node does not have the address, or it is every address.
    """
    portal = Portal(address, port)
    number = ipaddress.ip_address(portal.address)
    if number.is_unspecified:
        remedy = "hosts log in to it, so name one address of this node"
    elif number.is_loopback or number in _addresses():
        return portal
    else:
        remedy = (
            "this node does not have it: configure it, or name one that `ip address`"
            " shows; start after the service that adds it (network-online.target,"
            " keepalived)"
        )
    raise InvalidValue(option, address, remedy)


def _addresses() -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the addresses of this node's interfaces."""
    texts = (
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    )
    return {ipaddress.ip_address(text) for text in texts}
