# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The text of the table ``inet lunshare``: who may open a connection to a portal.

A pure function of what each backend wants; nothing here calls the kernel. Each backend
has sets of its own: its portals, the addresses of hosts with an attachment, and its
networks. Only the first packet of a connection is looked at (a SYN), so a connection
that exists is never cut, and the table can appear under running sessions.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lunshare.drivers.values import Portal

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TABLE = "inet lunshare"
#: In the kernel's log before each refused connection that is logged.
LOG_PREFIX = "lunshare refused a connection: "

#: New connections of one address: so many at once, then so many in a second. One more
#: is dropped, and its host tries again after a second.
BURST, PER_SECOND = 64, 20
#: Addresses that are counted, of each family; of refused ones, those of the last hour.
MAX_COUNTED, MAX_REFUSED = 65_535, 1_024
LOGGED_PER_MINUTE = 20

_VERSIONS = (4, 6)
#: Who was refused in the last hour: its address, and that of the portal.
REFUSED_SETS = tuple(f"refused{version}" for version in _VERSIONS)
_KINDS = {
    "portals": "{family} . inet_service",
    "hosts": "{family}",
    "networks": "{family}; flags interval",
}
_PLAIN = re.compile("[A-Za-z0-9_-]")
_SET = re.compile("portals4-(.+)")


@dataclass(frozen=True, slots=True)
class Doors:
    """What one backend wants: who may connect to which portals."""

    backend: str
    portals: tuple[Portal, ...]
    addresses: frozenset[Address]
    networks: tuple[Network, ...]


def set_name(kind: str, version: int, backend: str) -> str:
    """Return the name of a set."""
    return f"{kind}{version}-{suffix(backend)}"


def suffix(backend: str) -> str:
    """Return the end of the names of a backend's sets.

    A character that nft does not allow in a name is its number between two dots.
    """
    words = (sign if _PLAIN.fullmatch(sign) else f".{ord(sign):x}." for sign in backend)
    return "".join(words)


def set_names(backend: str) -> list[str]:
    """Return the names of a backend's sets."""
    return [
        set_name(kind, version, backend) for version in _VERSIONS for kind in _KINDS
    ]


def suffixes(names: Iterable[str]) -> set[str]:
    """Return what follows the ``-`` in the names of sets: one for each backend."""
    return {match[1] for match in map(_SET.fullmatch, names) if match}


def elements(doors: Doors) -> dict[str, list[str]]:
    """Return the elements that each set of the backend has, as nft shows them."""
    texts: dict[str, list[str]] = {name: [] for name in set_names(doors.backend)}
    for portal in doors.portals:
        version = ipaddress.ip_address(portal.address).version
        name = set_name("portals", version, doors.backend)
        texts[name].append(f"{portal.address} . {portal.port}")
    for address in doors.addresses:
        texts[set_name("hosts", address.version, doors.backend)].append(str(address))
    for network in doors.networks:
        name = set_name("networks", network.version, doors.backend)
        texts[name].append(_network(network))
    return {name: sorted(set(values)) for name, values in texts.items()}


def _network(network: Network) -> str:
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if whole else str(network)


def complete(doors: Doors, others: Iterable[str], most: int) -> str:
    """Return the text that gives the table its form, and this backend its elements.

    ``others``: the suffixes of other backends whose sets exist; these are not changed.
    ``most``: how many connections one address may have, 0 for any number.
    """
    rules = _rules(sorted({suffix(doors.backend), *others}))
    lines = [*_shared(most), *_sets(doors), *rules, *_ends(most)]
    return "\n".join(lines) + "\n"


def _shared(most: int) -> Iterable[str]:
    """The parts that all backends share; sets of counts keep what they have."""
    yield f"add table {TABLE}"
    yield f"add counter {TABLE} refused"
    for version in _VERSIONS:
        family = f"ipv{version}_addr"
        counted = f"{{ type {family}; size {MAX_COUNTED}; flags dynamic"
        yield f"add set {TABLE} rates{version} {counted},timeout; timeout 1m; }}"
        if most:
            yield f"add set {TABLE} connections{version} {counted}; }}"
        refused = f"type {family} . {family}; size {MAX_REFUSED}; flags dynamic,timeout"
        yield f"add set {TABLE} refused{version} {{ {refused}; timeout 1h; }}"
    hook = "type filter hook input priority -10; policy accept;"
    yield f"add chain {TABLE} input {{ {hook} }}"
    for chain in ("admitted", "refused"):
        yield f"add chain {TABLE} {chain}"


def _sets(doors: Doors) -> Iterable[str]:
    for version in _VERSIONS:
        for kind, form in _KINDS.items():
            name = set_name(kind, version, doors.backend)
            kind_form = form.format(family=f"ipv{version}_addr")
            yield f"add set {TABLE} {name} {{ type {kind_form}; }}"
    for name, values in elements(doors).items():
        yield f"flush set {TABLE} {name}"
        if values:
            yield f"add element {TABLE} {name} {{ {', '.join(values)} }}"


def _ends(most: int) -> Iterable[str]:
    """The two ends of a new connection: admitted within its bounds, or refused."""
    yield f"flush chain {TABLE} admitted"
    yield f"flush chain {TABLE} refused"
    rule, rate = f"add rule {TABLE}", f"{PER_SECOND}/second burst {BURST} packets"
    for version, ip in zip(_VERSIONS, ("ip", "ip6"), strict=True):
        bound = f"update @rates{version} {{ {ip} saddr limit rate over {rate} }}"
        yield f"{rule} admitted {bound} drop"
        if most:
            count = f"add @connections{version} {{ {ip} saddr ct count over {most} }}"
            yield f"{rule} admitted {count} goto refused"
        yield f"{rule} refused update @refused{version} {{ {ip} saddr . {ip} daddr }}"
    yield f"{rule} admitted accept"
    yield f"{rule} refused counter name refused"
    log = f'log prefix "{LOG_PREFIX}"'
    yield f"{rule} refused limit rate {LOGGED_PER_MINUTE}/minute {log}"
    yield f"{rule} refused reject with tcp reset"


def _rules(backends: Sequence[str]) -> Iterable[str]:
    yield f"flush chain {TABLE} input"
    yield f"add rule {TABLE} input tcp flags & (fin | syn | rst | ack) != syn accept"
    for version, ip in zip(_VERSIONS, ("ip", "ip6"), strict=True):
        portal = f"add rule {TABLE} input {ip} daddr . tcp dport @portals{version}-"
        for backend in backends:
            for kind in ("hosts", "networks"):
                source = f"{ip} saddr @{kind}{version}-{backend}"
                yield f"{portal}{backend} {source} goto admitted"
        for backend in backends:
            yield f"{portal}{backend} goto refused"


def some_addresses(
    backend: str, wanted: Iterable[Address], unwanted: Iterable[Address]
) -> str:
    """Return the text that admits addresses to the portals of a backend, or not."""
    # Before Linux 6.3 only an element that exists can be deleted.
    steps = (("add", [*wanted, *unwanted]), ("delete", [*unwanted]))
    return "".join(
        f"{verb} element {TABLE} {set_name('hosts', version, backend)} {{ {same} }}\n"
        for verb, addresses in steps
        for version in _VERSIONS
        if (same := ", ".join(str(a) for a in addresses if a.version == version))
    )


def without(backend: str, others: Iterable[str]) -> str:
    """Return the text that removes a backend; without another one, the whole table."""
    rest = sorted(others)
    if not rest:
        return f"delete table {TABLE}\n"
    lines = [*_rules(rest)]
    lines += [f"delete set {TABLE} {name}" for name in set_names(backend)]
    return "\n".join(lines) + "\n"
