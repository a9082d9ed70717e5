# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The firewall of a LIO backend's portals: when it is closed, and what is seen of it.

``lunshare.helper.firewall`` changes nftables. Here is decided whether it may: a node
that is upgraded must not lock out the hosts that use it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from lunshare.drivers.base import Root
from lunshare.drivers.errors import InvalidValue, Misconfigured, Unsupported
from lunshare.drivers.values import (
    LiveExport,
    Portal,
    PortalGuard,
    PortalHost,
    host_address,
)

LOG = logging.getLogger(__name__)

_NAMED = 5  # hosts in a sentence
#: Of the kernel and libnftables: 0.1 ms were measured (Linux 6.18, two processors).
_SECONDS_OF_ADDRESS = 0.001
_REMEDY = (
    "name the networks of all hosts in initiator_networks and restart, or set"
    " portal_firewall to true (hosts elsewhere are refused when they connect again) or"
    " to false"
)


class PortalFirewall:
    """Admits hosts of one backend to its portals; see ``TargetDriver.admit``."""

    def __init__(
        self,
        backend: str,
        options: Mapping[str, Any],
        root: Root,
        *,
        portals: Collection[Portal],
        observe: Callable[[], Iterable[LiveExport]],
    ) -> None:
        """``observe`` reads the live exports, with the addresses of sessions."""
        self._backend, self._root, self._portals = backend, root, portals
        self._observe = observe
        self._deadline = float(options["lio_deadline"])
        self._option: bool | None = options["portal_firewall"]
        self._networks = [_network(text) for text in options["initiator_networks"]]
        self._is_closed = self._is_removed = False
        self.guard: PortalGuard | None = None

    @property
    def guards(self) -> bool:
        """Whether it is closed, or nothing is known yet that keeps it from being."""
        return self._option is not False and not (self.guard and self.guard.open)

    @property
    def needs_addresses(self) -> bool:
        """Whether a host without an address in its connector would be refused."""
        return self._is_closed and not self._networks

    def check(self) -> None:
        """Check that the node can keep a firewall which the operator demands.

        :raises Misconfigured: it cannot.
        """
        if self._option:
            try:
                self._call("observe")
            except Unsupported as error:
                raise Misconfigured("portal_firewall = true", str(error)) from error

    def admit_each(self, addresses: Mapping[str, bool]) -> bool:
        """See ``TargetDriver.admit_each``."""
        if not self.guards:
            return True
        by_wish: dict[bool, list[str]] = {True: [], False: []}
        for address, wanted in addresses.items():
            by_wish[wanted].append(address)
        more = len(addresses) * _SECONDS_OF_ADDRESS
        fields = {"wanted": by_wish[True], "unwanted": by_wish[False]}
        try:
            return bool(self._call("admit", more, **fields))
        except Unsupported:
            return False  # admit_all says it

    def admit_all(self, hosts: Collection[PortalHost]) -> tuple[str, ...]:
        """See ``TargetDriver.admit_all``."""
        if self._option is False:
            return self._removed()
        try:
            problem = self._lockout_problem(hosts)
            changes = () if problem else self._applied(hosts)
        except Unsupported as error:
            if self._option:
                raise
            problem, changes = str(error), ()
        self._note(problem)
        return changes

    def _removed(self) -> tuple[str, ...]:
        """Remove what a former configuration has left, once."""
        changes = () if self._is_removed else tuple(self._call("remove"))
        self._is_removed = True
        self.guard = PortalGuard("portal_firewall is false")
        return changes

    def _applied(self, hosts: Collection[PortalHost]) -> tuple[str, ...]:
        addresses = sorted({host.address for host in hosts if host.address})
        changes = self._call(
            "apply",
            len(addresses) * _SECONDS_OF_ADDRESS,
            portals=[asdict(portal) for portal in self._portals],
            addresses=addresses,
            networks=list(map(str, self._networks)),
        )
        self._is_closed = True
        return tuple(changes)

    def _lockout_problem(self, hosts: Collection[PortalHost]) -> str:
        """Say who would be locked out if the portals are closed for the first time.

        Only while no option decides it, and the kernel has not closed them already.
        """
        if self._option is not None or self._is_closed:
            return ""
        if self._call("observe")["guards"]:
            return ""
        strangers = sorted({*self._unaddressed(hosts), *self._elsewhere(hosts)})
        if not strangers:
            return ""
        rest = len(strangers) - _NAMED
        more = f" and {rest} more" if rest > 0 else ""
        named = ", ".join(strangers[:_NAMED]) + more
        return f"attached hosts would be locked out: {named}: {_REMEDY}"

    def _unaddressed(self, hosts: Collection[PortalHost]) -> Iterable[str]:
        if self._networks:
            return ()
        return (
            f"{host.initiator} (no ip in its connector)"
            for host in hosts
            if host.address is None
        )

    def _elsewhere(self, hosts: Collection[PortalHost]) -> Iterable[str]:
        """The hosts whose sessions come from where nobody will be admitted."""
        volumes = {host.volume_id for host in hosts}
        admitted = {host.address for host in hosts}
        for export in self._observe() if volumes else ():
            if export.unread and export.volume_id in volumes:
                yield f"hosts of volume {export.volume_id} ({export.unread})"
            for connector in export.connectors if export.volume_id in volumes else ():
                for address in map(_plain, connector.addresses):
                    if address not in admitted and not self._in_network(address):
                        yield f"{connector.initiator} (a session from {address})"

    def _in_network(self, address: str) -> bool:
        number = ipaddress.ip_address(address)
        return any(number in network for network in self._networks)

    def _note(self, problem: str) -> None:
        """Note what the portals are now, and log what is new of it."""
        if problem:
            if self.guard is None or self.guard.open != problem:
                LOG.warning(
                    "[%s] everybody reaches the portals: %s", self._backend, problem
                )
            self._is_closed, self.guard = False, PortalGuard(problem)
            return
        state = self._call("observe")
        sources = tuple(f"{source} to {portal}" for source, portal in state["sources"])
        before = self.guard.refused if self.guard else 0
        if state["refused"] < before:
            before = 0  # the table was made again
        self.guard = PortalGuard("", state["refused"], sources)
        if self.guard.refused > before:
            LOG.warning(
                "[%s] connections refused at the portals of this node: %s, the last"
                " from %s",
                self._backend,
                self.guard.refused - before,
                ", ".join(sources[:_NAMED]) or "an address that is forgotten",
            )

    def _call(self, verb: str, more_seconds: float = 0.0, **arguments: Any) -> Any:
        return self._root.call(
            f"firewall.{verb}",
            timeout=self._deadline + more_seconds,
            backend=self._backend,
            **arguments,
        )


def _plain(address: str) -> str:
    """Return an address of a session as rows have it."""
    return host_address(address.strip("[]")) or address


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network.

    :raises InvalidValue: it is not one.
    """
    remedy = "give a network such as 192.0.2.0/24, without bits behind its prefix"
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise InvalidValue("initiator_networks", text, remedy) from None
    first = network.network_address
    if getattr(first, "scope_id", None) is not None:
        raise InvalidValue("initiator_networks", text, remedy)
    if getattr(first, "ipv4_mapped", None) is not None:
        raise InvalidValue("initiator_networks", text, "name the IPv4 network")
    return network
