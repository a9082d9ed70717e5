# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Refuse requests that a web page sends through the browser of a user.

A page can name this node by another name of its own (DNS rebinding: then Host is
foreign), or send a simple request to it (then Origin is foreign, and the body is not
JSON). A GET, of an image or a link, has no Origin, but Sec-Fetch-Site. Programs send
neither of both, and the Host that they were configured with.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from lunshare.agent.api.faults import Fault
from lunshare.agent.listen_addresses import Address, hosts

#: What browsers say of a page of another origin, also of another port of this host.
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})


class Origins:
    """The names by which clients may reach this node."""

    def __init__(
        self,
        addresses: Sequence[Address],
        public_endpoint: str | None,
        allowed: Collection[str],
    ) -> None:
        """``allowed``: more names than the addresses, localhost and the endpoint."""
        self._more = frozenset(name.lower() for name in allowed)
        public = urlsplit(public_endpoint or "")
        self._public = public.netloc.lower()
        self._names = hosts(addresses) | self._more | {public.hostname or "localhost"}
        self._any_address = any(address.every_address for address in addresses)
        self._right: set[str] = set()

    def check(
        self, host: str | None, origin: str | None, fetch_site: str | None = None
    ) -> None:
        """Check the headers Host, Origin and Sec-Fetch-Site.

        Without Host it is a client of HTTP/1.0, and no browser.

        :raises Fault: 403.
        """
        if host is not None and host not in self._right:
            if not self._is_known(_name(host)):
                raise Fault(
                    403,
                    "The Host header names another host: use an address of listen, or"
                    " add the name to allowed_hosts.",
                )
            if len(self._right) < 1000:
                self._right.add(host)
        is_foreign = fetch_site in _FOREIGN_SITES
        if origin is not None:
            is_foreign = not self._is_own(origin, host)
        if is_foreign:
            raise Fault(403, "Web pages of another origin may not use this API.")

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        # The wildcard has every address of the node. A page cannot bring an address
        # to mean this node: its own origin would be that address.
        return self._any_address

    def _is_own(self, origin: str, host: str | None) -> bool:
        try:
            netloc = urlsplit(origin.lower()).netloc
        except ValueError:
            netloc = ""
        if not netloc:
            return False
        return netloc in ((host or "").lower(), self._public) or (
            _name(netloc) in self._more
        )


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    text = host.lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
