# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs firewall.*: the table ``inet lunshare``, and no other table.

The helper stores nothing: which backends have sets is read from the kernel. Each change
is one transaction, so a kill leaves the table as it was before or after it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lunshare.drivers.errors import HelperRefused, Misconfigured, Unsupported
from lunshare.drivers.values import Portal
from lunshare.helper import requests
from lunshare.helper.firewall import firewall_requests, nftables, portal_rules
from lunshare.helper.firewall.nftables import NftablesFailed
from lunshare.helper.firewall.portal_rules import TABLE, Doors
from lunshare.helper.named_locks import Locks
from lunshare.helper.verbs import ChangeVerb, IsGone, never_gone

#: Connections that one address may have to all portals.
MAX_CONNECTIONS = 1_000
#: Sources of refused connections in an answer.
MAX_SOURCES = 32

_SYSTEM_PORTS = 1024
# The kernel listens before configfs shows a new portal, and after a removed one is not
# shown any more.
_CHANGE_SECONDS, _POLL_SECONDS = 1.0, 0.01
_Value = TypeVar("_Value")
_Snapshot = dict[str, Any]

#: Whether a portal is one of the kernel's iSCSI target.
IsPortal = Callable[[Portal], bool]


class FirewallVerbs:
    """Admits hosts to the portals of backends; everybody else's connection is refused.

    :raises Unsupported: this node has no libnftables, or its kernel no such tables.
    :raises Misconfigured: the kernel refused a change; nothing of it was done.
    :raises DeadlineExceeded: the kernel did not answer in time.
    """

    def __init__(self, is_portal: IsPortal) -> None:
        self._is_portal, self._locks = is_portal, Locks()

    def verbs(self) -> dict[str, Any]:
        """Return them by name."""
        return {
            "firewall.check": self.check,
            "firewall.observe": self.observe,
            "firewall.apply": ChangeVerb(self.apply),
            "firewall.admit": ChangeVerb(self.admit),
            "firewall.remove": ChangeVerb(self.remove),
        }

    def check(self, arguments: Mapping[str, Any], _: float) -> None:
        """Check that the node has what the firewall needs."""
        requests.nothing(arguments)
        nftables.require_library()

    def observe(self, arguments: Mapping[str, Any], _: float) -> dict[str, Any]:
        """Return whether a backend's portals are guarded, and who was refused.

        ``sources`` are the last, with the address that each wanted; they and the
        ``refused`` connections are those of all backends.
        """
        backend = firewall_requests.backend(arguments)
        return _translated(lambda: _observed(backend))

    def apply(
        self,
        arguments: Mapping[str, Any],
        seconds: float,
        is_gone: IsGone = never_gone,
    ) -> list[str]:
        """Make all that concerns one backend as it is wanted; return what changed."""
        doors = firewall_requests.doors(arguments)
        for portal in doors.portals:
            self._need_portal(portal, seconds)
        return self._changed(lambda: _apply(doors), seconds, is_gone)

    def admit(
        self,
        arguments: Mapping[str, Any],
        seconds: float,
        is_gone: IsGone = never_gone,
    ) -> bool:
        """Admit addresses to a backend's portals, or not any more.

        Returns False where the backend has no sets, and so no firewall: ``apply`` is
        what creates them.
        """
        text = portal_rules.some_addresses(*firewall_requests.some_addresses(arguments))
        return self._changed(lambda: _changed_elements(text), seconds, is_gone)

    def remove(
        self,
        arguments: Mapping[str, Any],
        seconds: float,
        is_gone: IsGone = never_gone,
    ) -> list[str]:
        """Remove what concerns one backend; return what changed."""
        backend = firewall_requests.backend(arguments)
        try:
            return self._changed(lambda: _remove(backend), seconds, is_gone)
        except Unsupported:
            return []  # there is none to remove

    def _changed(
        self, step: Callable[[], _Value], seconds: float, is_gone: IsGone
    ) -> _Value:
        """Run the step alone, in a thread of its own, until the deadline."""
        values: list[_Value] = []
        with self._locks.hold(TABLE, seconds, is_gone=is_gone) as lock:
            lock.run_step(f"table {TABLE}", lambda: values.append(_translated(step)))
        return values[0]

    def _need_portal(self, portal: Portal, seconds: float) -> None:
        """:raises HelperRefused: another service of this node listens there."""
        until = time.monotonic() + min(seconds, _CHANGE_SECONDS)
        while _is_in_use(portal) and not self._is_portal(portal):
            if time.monotonic() > until:
                raise HelperRefused(
                    f"a firewall for {portal}", "a program of this node listens there"
                )
            time.sleep(_POLL_SECONDS)


def _translated(step: Callable[[], _Value]) -> _Value:
    try:
        return step()
    except NftablesFailed as error:
        if error.is_absent:
            raise _unsupported(error) from None
        raise Misconfigured(
            f"the table {TABLE}",
            f"nftables refused it: {error}; see `nft list table {TABLE}`",
        ) from None


def _unsupported(error: NftablesFailed) -> Unsupported:
    return Unsupported(
        "a firewall for the portals",
        f"this kernel's nftables has not all that it needs, or the unit of"
        f" lunshare-helper no CAP_NET_ADMIN ({error}): install the unit again, or a"
        " kernel with nf_tables, its family inet, limit, connlimit, log and reject",
    )


def _observed(backend: str) -> dict[str, Any]:
    own = portal_rules.suffix(backend)
    if own not in _backends(_forms()):
        return {"guards": False, "refused": 0, "sources": []}
    try:
        (counter,) = nftables.read(f"list counter {TABLE} refused", counts=True)[-1:]
        refused, sources = counter["counter"]["packets"], _last_sources()
    except NftablesFailed as error:
        if not error.is_missing:
            raise
        refused, sources = 0, []  # until it is applied
    return {"guards": True, "refused": refused, "sources": sources}


def _last_sources() -> list[list[str]]:
    """Return the last refused sources, each with its portal's address, newest first."""
    entries = []
    for name in portal_rules.REFUSED_SETS:
        (listing,) = nftables.read(f"list set {TABLE} {name}", counts=True)[-1:]
        for value in listing["set"].get("elem", ()):
            element = value["elem"]
            entries.append((element.get("expires", 0), element["val"]["concat"]))
    entries.sort(reverse=True)
    return [list(pair) for _, pair in entries[:MAX_SOURCES]]


def _apply(doors: Doors) -> list[str]:
    before = _snapshot(doors.backend)
    text = portal_rules.complete(doors, _backends(before), MAX_CONNECTIONS)
    try:
        nftables.change(text)
    except NftablesFailed as error:
        if not before:
            # All is new: what is missing is in the kernel.
            raise (_unsupported(error) if error.is_missing else error) from None
        # A set or chain of that name has another form, or another backend lacks a set.
        # Other backends' sets are gone with the table, until they are applied.
        text = portal_rules.complete(doors, (), MAX_CONNECTIONS)
        nftables.change(f"delete table {TABLE}\n{text}")
    return _differences(before, _snapshot(doors.backend))


def _changed_elements(text: str) -> bool:
    try:
        nftables.change(text)
    except NftablesFailed as error:
        if error.is_missing:
            return False
        raise
    return True


def _remove(backend: str) -> list[str]:
    before = _snapshot(backend)
    names = _backends(before)
    own = portal_rules.suffix(backend)
    if own not in names:
        return []
    nftables.change(portal_rules.without(backend, names - {own}))
    return [f"the firewall of {backend}'s portals removed"]


def _snapshot(backend: str) -> _Snapshot:
    """Return the form of the table, and the elements of a backend's sets.

    Empty if there is no table.
    """
    snapshot = _forms()
    for name in portal_rules.set_names(backend):
        if f"set {name}" in snapshot:
            snapshot[f"set {name}"] = _elements(name)
    return snapshot


def _forms() -> _Snapshot:
    """Return the form of each object of the table. Empty if there is no table."""
    try:
        objects = nftables.read(f"list table {TABLE}", elements=False)
    except NftablesFailed as error:
        if error.is_missing:
            return {}
        raise
    return {_name(entry): _form(entry) for entry in objects}


def _name(entry: Mapping[str, Any]) -> str:
    """Return what nft calls an object: its kind, its name, and a rule's number."""
    ((kind, fields),) = entry.items()
    name = fields.get("name", fields.get("chain"))
    return f"{kind} {name} {fields['handle']}" if kind == "rule" else f"{kind} {name}"


def _form(entry: Mapping[str, Any]) -> Any:
    """Return its fields without the number that the kernel gave it."""
    ((_, fields),) = entry.items()
    return {name: value for name, value in fields.items() if name != "handle"}


def _elements(name: str) -> list[str]:
    """Return the elements of a set, as portal_rules.elements writes them."""
    (listing,) = nftables.read(f"list set {TABLE} {name}")[-1:]
    return sorted(map(_element, listing["set"].get("elem", ())))


def _element(value: Any) -> str:
    match value:
        case {"concat": parts}:
            return " . ".join(map(str, parts))
        case {"prefix": {"addr": address, "len": length}}:
            return f"{address}/{length}"
        case _:
            return str(value)


def _backends(snapshot: _Snapshot) -> set[str]:
    names = (key.removeprefix("set ") for key in snapshot if key.startswith("set "))
    return portal_rules.suffixes(names)


def _differences(before: _Snapshot, after: _Snapshot) -> list[str]:
    """Return a sentence for each set that changed, and one for all other objects."""
    if not before:
        return [f"table {TABLE} created"]
    changes = []
    for name, values in after.items():
        old = before.get(name, [])
        if isinstance(values, list) and values != old:
            changes.append(_change(f"{name} of table {TABLE}", old, values))
    if _rules(before) != _rules(after):
        changes.append(f"rules of table {TABLE} written again")
    return changes


def _change(name: str, old: Sequence[str], new: Sequence[str]) -> str:
    removed, added = set(old) - set(new), set(new) - set(old)
    return f"{name}: {len(removed)} elements removed, {len(added)} added"


def _rules(snapshot: _Snapshot) -> list[Any]:
    """Return all that is not elements, in the order of the kernel."""
    return [value for value in snapshot.values() if not isinstance(value, list)]


def _is_in_use(portal: Portal) -> bool:
    """Whether a program, or the kernel, listens at the portal or at every address."""
    if portal.port < _SYSTEM_PORTS:
        return False  # of 860 only: it is assigned to iSCSI, and needs a capability
    kind = socket.AF_INET6 if ":" in portal.address else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((portal.address, portal.port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
