# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The four verbs of the target, by plain calls on configfs. No state is kept.

rtslib takes 11 to 21 ms for an access that plain calls make in 2 (6.1, emulated),
and walks the whole tree to save it; one access made here is about twenty system
calls whatever the node holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Any

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.helper.lio import (
    acls,
    backstores,
    iscsi_target,
    reservations,
)
from lunshare.drivers.helper.lio.backstores import Role
from lunshare.drivers.helper.lio.configfs import CORE, ISCSI, ROOT, make, names, read
from lunshare.drivers.helper.lio.iscsi_target import Target
from lunshare.drivers.helper.lio.target_requests import Apply
from lunshare.drivers.helper.named_locks import Hold, Locks
from lunshare.drivers.values import Connector, Disk, Export, Mode

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class Lio:
    """The targets whose names are ``prefix`` and ``volume-UUID``; no others.

    :raises TargetFailed: the kernel refused; access is at most what is wanted.
    :raises DeadlineExceeded: see lunshare.drivers.base.TargetDriver.apply.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._ours = re.compile(re.escape(prefix) + f"volume-({_UUID})")
        self._locks = Locks()

    def check(self) -> list[str]:
        """Make the node ready; return a sentence for each thing that is missing."""
        if not os.path.isdir(ROOT):
            return [_missing()]
        try:
            make(ISCSI)  # the kernel loads iscsi_target_mod by itself for this
        except OSError as error:
            return [f"{ISCSI} cannot be made ({error.strerror}): {_REMEDY}"]
        return _prepare(read(ROOT + "/dbroot"))

    def apply(self, wanted: Apply, seconds: float) -> list[str]:
        """Make the live export equal to the wanted one; return what was changed."""
        target = Target(self._prefix, wanted.export.volume_id)
        disk = wanted.export.disk
        medium = os.path.dirname(disk.path) if disk else ""
        with self._locks.hold(target.name, seconds, medium) as hold:
            return _guarded(target, lambda: _apply(target, wanted, hold))

    def remove(self, volume_id: str, seconds: float) -> list[str]:
        """Take the volume's export away; return what was changed."""
        target = Target(self._prefix, volume_id)
        with self._locks.hold(target.name, seconds) as hold:
            return _guarded(target, lambda: _remove(target, hold))

    def observe(self) -> list[dict[str, Any]]:
        """Every export of ours, as LiveExport has it."""
        found = (self._ours.fullmatch(name) for name in names(ISCSI))
        return [self._observed(match[1]) for match in found if match]

    def live(self, volume_id: str) -> dict[str, Any] | None:
        """The export of one volume, as ``observe`` has it; None if there is none."""
        target = Target(self._prefix, volume_id)
        return self._observed(volume_id) if os.path.isdir(target.path) else None

    def _observed(self, volume_id: str) -> dict[str, Any]:
        target = Target(self._prefix, volume_id)
        seen = (_live(target, initiator) for initiator in target.acls())
        return {
            "volume_id": volume_id,
            "enabled": target.enabled(),
            "connectors": [connector for connector in seen if connector],
        }


def _apply(target: Target, wanted: Apply, hold: Hold) -> list[str]:
    """Closings, then the export itself, then openings, then the switch."""
    export = wanted.export
    changes = _close(target, wanted, hold)
    if export.disk is None or not export.connectors:
        return changes
    found = iscsi_target.look_at(export.disk, hold)
    if fresh := not _stands(target, export.disk, found, wanted.only is None):
        found = iscsi_target.examine(export.disk, hold)  # before anything is taken down
        changes += _renew(target, export.disk, wanted, hold)
    changes += _sort(target, export.disk, found, wanted, hold)
    if not fresh:
        if wanted.only is None:
            changes += iscsi_target.mend(target, export.disk, wanted.portals)
        changes += iscsi_target.grow(target, export.disk, found)
    changes += _open(target, wanted)
    if fresh:
        iscsi_target.enable(target)
    return changes


def _stands(
    target: Target, disk: Disk, found: os.stat_result | None, every: bool
) -> bool:
    """Whether the target need not be built.

    The serial is compared only when every host is asked about: the kernel keeps
    that of a backstore that a LUN leads to (target_core_configfs.c).
    """
    if found is None:
        return False
    identity = backstores.identity(found)
    if every:
        return iscsi_target.exports(target, disk, identity)
    return iscsi_target.finished(target, identity)


def _renew(target: Target, disk: Disk, wanted: Apply, hold: Hold) -> list[str]:
    """Take down what there is, and build the target with what is saved for it."""
    changes = iscsi_target.teardown(target, hold)
    path = iscsi_target.build(target, disk, wanted.portals, hold)
    keys = reservations.restore(target, path, _writers(wanted))
    iscsi_target.link(target, Role.WRITERS, path)
    return [*changes, f"target of {target.name} made", *keys]


def _writers(wanted: Apply) -> set[str] | None:
    """Whose reservations may come back; None when not every host is known."""
    if wanted.only is not None:
        return None
    connectors = wanted.export.connectors
    return {each.initiator for each in connectors if each.mode is Mode.RW}


def _sort(
    target: Target,
    disk: Disk,
    found: os.stat_result | None,
    wanted: Apply,
    hold: Hold,
) -> list[str]:
    """Have the readers' LUN if it is wanted, and each host on its own one.

    The readers' LUN is made before anybody is moved to it: should that fail, a host
    that reads goes on reading.
    """
    chosen = _chosen(wanted.export, wanted.only)
    reads, changes = any(each.mode is Mode.RO for each in chosen), []
    if reads and found is not None:
        identity, every = backstores.identity(found), wanted.only is None
        changes += iscsi_target.serve_readers(target, disk, identity, every, hold)
    for each in chosen:
        acl, lun = target.acl(each.initiator), target.lun_of(each)
        if acls.misplaced(acl, lun):
            acls.displace(acl, hold)
            reservations.strike(target, each.initiator)
            changes.append(f"{each.initiator} moved to the {each.mode} hosts' LUN")
    if wanted.only is None and not reads:
        changes += iscsi_target.dismiss_readers(target, hold)
    return changes


def _close(target: Target, wanted: Apply, hold: Hold) -> list[str]:
    """Close what is not wanted among the initiators that are asked about."""
    connectors = {each.initiator: each for each in wanted.export.connectors}
    changes = []
    for initiator in target.acls() if wanted.only is None else wanted.only:
        acl = target.acl(initiator)
        if initiator not in connectors:
            changes += _leave(target, initiator, hold)
        elif acls.exceeds(acl, connectors[initiator]):
            acls.restrict(acl, hold)
            changes.append(f"{initiator} may no longer write")
        if wanted.only is None and initiator in connectors and acls.strays(acl):
            acls.remove_strays(acl)
            changes.append(f"a stray mapped LUN of {initiator} removed")
    return changes


def _leave(target: Target, initiator: str, hold: Hold) -> list[str]:
    """Close a host's access. Its ACL goes last: while it is there, this is repeated."""
    acl = target.acl(initiator)
    found = acls.close(acl, hold)
    reservations.strike(target, initiator)
    if found:
        acls.remove(acl)
    return [f"{initiator} closed"] if found else []


def _open(target: Target, wanted: Apply) -> list[str]:
    changes = []
    for connector in _chosen(wanted.export, wanted.only):
        acl = target.acl(connector.initiator)
        changes += acls.grant(acl, target.lun_of(connector), connector)
    return changes


def _chosen(export: Export, only: Collection[str] | None) -> list[Connector]:
    if only is None:
        return list(export.connectors)
    return [each for each in export.connectors if each.initiator in only]


def _remove(target: Target, hold: Hold) -> list[str]:
    """No host is left, so no reservation is either."""
    changes = iscsi_target.teardown(target, hold)
    reservations.forget(target)
    return changes


def _live(target: Target, initiator: str) -> list[Any] | None:
    """One ACL as LiveConnector has it; None when it went away meanwhile."""
    acl = target.acl(initiator)
    try:
        mode = acls.mode(acl)
        if acls.unguarded(acl, target.lun(Role.WRITERS)):
            mode = Mode.RW
        tag, sessions = acls.tag(acl), int(acls.in_session(acl))
    except FileNotFoundError:
        return None
    return [initiator, mode and mode.value, tag, sessions, acls.addresses(acl)]


def _guarded(target: Target, change: Any) -> list[str]:
    """The kernel's refusals as one kind of error, without any value written."""
    try:
        done: list[str] = change()
    except OSError as error:
        where = str(error.filename or "an attribute").removeprefix(ROOT + "/")
        raise TargetFailed(
            target.volume_id, f"{where}: {error.strerror or error}"
        ) from None
    return done


_REMEDY = "load the modules target_core_mod and iscsi_target_mod"


def _missing() -> str:
    if os.path.isdir(os.path.dirname(ROOT)):
        return f"{ROOT} is missing: {_REMEDY}"
    return f"{os.path.dirname(ROOT)} is missing: mount configfs there"


def _prepare(database: str) -> list[str]:
    """Make the directories that the kernel keeps reservations and ALUA states in.

    Without ``pr`` a REGISTER fails and leaves its key registered (6.1).
    """
    problems = []
    for name in ("pr", "alua"):
        try:
            os.makedirs(f"{database}/{name}", mode=0o700, exist_ok=True)
        except OSError as error:
            problems.append(f"{database}/{name}: {error.strerror}: make it")
    reservations.durable(database)
    if not os.path.isdir(CORE):
        problems.append(f"{CORE} is missing: {_REMEDY}")
    return problems
