# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs of the target, by plain calls on configfs. They store no state.

rtslib takes 11 to 21 ms for an access that plain calls create in 2 (6.1, emulated),
and reads the complete tree to save it. Here one access is about twenty system calls,
whatever else the node exports.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.values import Connector, Disk, Mode
from lunshare.helper.lio import (
    acls,
    backstores,
    comparison,
    idle_acls,
    iscsi_target,
    kept_acls,
    repairs,
    reservations,
)
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.cinder_targets import TakesOver
from lunshare.helper.lio.configfs import CORE, ISCSI, ROOT, create_object, read
from lunshare.helper.lio.emptied_targets import EmptiedTargets
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import Locks, TimedLock
from lunshare.helper.verbs import IsGone, never_gone

# They have a part of the threads, like any other medium.
_UNKNOWN = "unknown disks"

_Value = TypeVar("_Value")
Hosts = tuple[Connector, ...]


class TargetVerbs:
    """Works on targets named ``prefix`` plus ``volume-UUID``, and on no others.

    :raises TargetFailed: the kernel refused; access is at most what is wanted.
    :raises DeadlineExceeded: see lunshare.drivers.base.TargetDriver.apply; or the
        client is gone, and nothing was started.
    """

    def __init__(self, prefix: str, takes_over: TakesOver | None = None) -> None:
        """``takes_over``: for which groups targets of Cinder's driver may be ours."""
        self._prefix, self._takes_over = prefix, takes_over
        self.locks = Locks()
        self._emptied = EmptiedTargets(self.locks)

    def check(self, prefix: str) -> list[str]:
        """Prepare the node; return a sentence for each thing that is missing or wrong.

        ``prefix``: what the client puts before the names of targets, for hosts.
        """
        if prefix != self._prefix:
            return [_other_prefix(prefix, self._prefix)]
        if not os.path.isdir(ROOT):
            return [_missing()]
        try:
            create_object(ISCSI)  # the kernel loads iscsi_target_mod by itself for this
        except OSError as error:
            return [f"{ISCSI} cannot be created ({error.strerror}): {_REMEDY}"]
        return _prepare(read(ROOT + "/dbroot"))

    def apply(
        self, wanted: Apply, seconds: float, is_gone: IsGone = never_gone
    ) -> list[str]:
        """Make the live export equal to the wanted one; return the changes."""
        target = self._target(wanted.export.volume_id)
        disk = wanted.export.disk
        medium = _medium(target, disk)
        with self.locks.hold(target.name, seconds, medium, is_gone=is_gone) as lock:
            return as_target_failed(_apply, target, wanted, lock)

    def remove(
        self, volume_id: str, seconds: float, is_gone: IsGone = never_gone
    ) -> list[str]:
        """Remove the volume's export; return the changes."""
        target = self._target(volume_id)
        medium = _medium(target, None)
        with self.locks.hold(target.name, seconds, medium, is_gone=is_gone) as lock:
            changes = as_target_failed(_remove, target, lock)
        if os.path.isdir(target.path):
            self._emptied.add(target)
        return changes

    def _target(self, volume_id: str) -> Target:
        return Target(self._prefix, volume_id, self._takes_over)


def _medium(target: Target, disk: Disk | None) -> str:
    """Return the volume group or share that a change may wait for (thread_limits).

    To close an access, no disk is named. Then it is that of the live target.
    """
    path = disk.path if disk else iscsi_target.disk_path(target)
    return path.rpartition("/")[0] or _UNKNOWN


def _apply(target: Target, wanted: Apply, lock: TimedLock) -> list[str]:
    """Close accesses, then repair or create the target, then open accesses."""
    _need_ours(target)
    export, changes = wanted.export, []
    if wanted.only is None or target.cinder_backstore():
        changes += repairs.close_unknown_hosts(target, lock)
    hosts, closed = _close(target, wanted, lock)
    changes += closed
    if wanted.only is None:
        idle_acls.remove_idle(target, lock)
    if export.disk is None or not export.connectors:
        return changes
    status = iscsi_target.stat_disk(export.disk, lock)
    if fresh := not _is_complete(target, export.disk, status, wanted.only is None):
        # Checked before anything is removed.
        status = iscsi_target.check_disk(export.disk, lock)
        changes += _recreate(target, export.disk, wanted, lock)
        hosts = wanted.concerned
    changes += _place_hosts(target, status, wanted, hosts, lock)
    if wanted.only is None and not export.reservations:
        changes += repairs.remove_unused_luns(target, lock)
    if not fresh:
        if wanted.only is None:
            changes += repairs.repair(
                target, export.disk, export.reservations, wanted.portals, hosts
            )
        changes += iscsi_target.refresh_sizes(target, export.disk, status)
    opened, refused = _open(target, hosts, export.reservations, lock)
    if fresh:
        iscsi_target.enable(target)
    if refused:
        raise TargetFailed(target.volume_id, refused[0])
    return changes + opened


def _is_complete(
    target: Target, disk: Disk, found: os.stat_result | None, every: bool
) -> bool:
    """Whether the target exists and is complete.

    The serial is compared only when every host is concerned: the kernel does not
    allow changing it while a LUN is linked (target_core_configfs.c).
    """
    if found is None:
        return False
    identity = backstores.disk_identity(found)
    if every:
        return iscsi_target.exports_disk(target, disk, identity)
    return iscsi_target.is_complete(target, identity)


def _recreate(target: Target, disk: Disk, wanted: Apply, lock: TimedLock) -> list[str]:
    """Remove the target, and create it with the reservations that it had."""
    entries = reservations.entries_of(target) if wanted.export.reservations else []
    changes = iscsi_target.teardown(target, lock)
    path = iscsi_target.create(target, disk, wanted.portals, lock)
    backstores.set_reservations(path, wanted.export.reservations)
    keys = []
    if entries:
        keys = reservations.restore(target, path, entries, _writers(wanted))
    iscsi_target.link_lun(target, Role.WRITERS, path)
    return [*changes, f"target of {target.name} created", *keys]


def _writers(wanted: Apply) -> set[str] | None:
    """Return the hosts that may have reservations; None when not all are known."""
    if wanted.only is not None:
        return None
    connectors = wanted.export.connectors
    return {
        connector.initiator for connector in connectors if connector.mode is Mode.RW
    }


def _place_hosts(
    target: Target,
    found: os.stat_result | None,
    wanted: Apply,
    hosts: Hosts,
    lock: TimedLock,
) -> list[str]:
    """Create the readers' LUN if it is wanted, and move hosts to the LUN of their mode.

    The readers' LUN is created before a host is moved to it. If that fails, a host
    that reads can still read.
    """
    reads, changes = Mode.RO in [connector.mode for connector in wanted.concerned], []
    disk = wanted.export.disk
    if reads and disk is not None and found is not None:
        identity, every = backstores.disk_identity(found), wanted.only is None
        changes += iscsi_target.create_readers_lun(target, disk, identity, every, lock)
    idle = wanted.only is None and not wanted.export.reservations
    for connector in hosts:
        if _is_misplaced(target, connector, idle):
            kept_acls.evict(target, connector.initiator, lock)
            changes.append(
                f"{connector.initiator} moved to the {connector.mode} hosts' LUN"
            )
    if wanted.only is None and not reads:
        changes += iscsi_target.remove_readers_lun(target, lock)
    return changes


def _is_misplaced(target: Target, host: Connector, idle: bool) -> bool:
    """Whether a host has another LUN than it should have.

    ``idle``: so has a host without a session that shares the writers' LUN.
    """
    acl = target.acl(host.initiator)
    if not os.access(acl, os.F_OK):
        return False
    tag, luns = acls.tag_and_luns(acl)
    if iscsi_target.has_other_lun(target, tag, luns, host.mode):
        return True
    shares = idle and luns == {os.path.basename(target.lun(Role.WRITERS))}
    return shares and not target.cinder_backstore() and acls.is_idle(acl)


def _need_ours(target: Target) -> None:
    """:raises TargetFailed: another program has created this target."""
    if parts := target.foreign_parts():
        raise TargetFailed(
            target.volume_id,
            f"another program has created {target.iqn}, with {', '.join(parts)}, and"
            " it is left alone: take_over_cinder_targets of helper.conf takes over"
            " those of Cinder's LVM driver, on the volume's disk in its volume_groups",
        )


def _close(target: Target, wanted: Apply, lock: TimedLock) -> tuple[Hosts, list[str]]:
    """Close what is not wanted; return the hosts to change, and the changes.

    Refuse all writes that are not wanted, before the first session is ended. One of
    them may wait for as long as its disk hangs, and the next apply would wait for the
    same one first.
    """
    keeping = {connector.initiator for connector in wanted.export.connectors}
    concerned = target.acls() if wanted.only is None else wanted.only
    leaving = [host for host in concerned if host not in keeping]
    for initiator in leaving:
        acls.write_protect(target.acl(initiator))
    hosts = wanted.concerned
    if wanted.only is None and target.enabled() and not target.cinder_backstore():
        hosts = comparison.differing_hosts(target, wanted)
    losing = [
        host.initiator
        for host in hosts
        if acls.allows_too_much(target.acl(host.initiator), host)
    ]
    for initiator in losing:
        acls.start_read_only(target.acl(initiator))
    changes = []
    if wanted.only is None:
        changes += repairs.correct_group(target, lock)
        changes += repairs.remove_extra_luns(target, hosts)
    if leaving:
        changes += _close_hosts(target, leaving, lock)
    for initiator in losing:
        acls.set_read_only(target.acl(initiator), lock)
        changes.append(f"{initiator} may no longer write")
    return hosts, changes


def _close_hosts(target: Target, hosts: list[str], lock: TimedLock) -> list[str]:
    """Close accesses. Each is noted last, so a retry starts here again."""
    closed = kept_acls.close_idle(target, hosts, lock)
    rest = sorted(set(hosts).difference(closed))
    closed += [host for host in rest if kept_acls.close(target, host, lock)]
    for acl in map(target.acl, set(hosts).difference(closed)):
        if acls.why_kept(acl) == acls.MEMORY:
            acls.keep(acl, acls.EMPTY)  # its next attachment is another one
    return [f"{host} closed" for host in closed]


def _open(
    target: Target, hosts: Hosts, shared: bool, lock: TimedLock
) -> tuple[list[str], list[str]]:
    """Open what is wanted; a new mapped LUN is read-only at first.

    ``shared``: those that write get one LUN. Return the changes, and why hosts are
    refused (``acls.REFUSED``).
    """
    changes, refused = [], []
    if target.cinder_backstore():
        repairs.prepare_for_hosts(target)
    for connector in hosts:
        acl = target.acl(connector.initiator)
        if why := acls.why_kept(acl):
            kept_acls.close(target, connector.initiator, lock)  # a session that is late
        if why in acls.REFUSED:
            refused.append(_REFUSED[why == acls.MEMORY] % connector.initiator)
        else:
            lun = partial(iscsi_target.lun_for, target, shared, connector)
            changes += acls.grant(acl, lun, connector)
    return changes, refused


def _remove(target: Target, lock: TimedLock) -> list[str]:
    """Remove the target and the saved reservations."""
    _need_ours(target)
    changes = iscsi_target.teardown(target, lock)
    reservations.delete_saved(target)
    return changes


def as_target_failed(
    change: Callable[..., list[_Value]], target: Target, *given: Any
) -> list[_Value]:
    """Raise the kernel's errors as TargetFailed, without any value that was written."""
    try:
        return change(target, *given)
    except OSError as error:
        where = str(error.filename or "an attribute").removeprefix(ROOT + "/")
        raise TargetFailed(
            target.volume_id, f"{where}: {error.strerror or error}"
        ) from None


_REFUSED = (
    "initiator %s has left a session or a registration at this volume that the kernel"
    " does not end: attach it to the volume after the node's next start, or attach"
    " another host",
    "initiator %s has taken the node's memory: detach it, and attach it again",
)
_REMEDY = "load the modules target_core_mod and iscsi_target_mod"


def _other_prefix(client: str, helper: str) -> str:
    return (
        f"target_prefix is {client} in the backend's section, and {helper} in"
        " /etc/lunshare/helper.conf: write the same one in both, and restart"
        " lunshare-helper.service"
    )


def _missing() -> str:
    if os.path.isdir(os.path.dirname(ROOT)):
        return f"{ROOT} is missing: {_REMEDY}"
    return f"{os.path.dirname(ROOT)} is missing: mount configfs there"


def _prepare(database: str) -> list[str]:
    """Create the directories where the kernel stores reservations and ALUA states.

    Without ``pr`` a REGISTER fails and leaves its key registered (6.1).
    """
    problems = []
    for name in ("pr", "alua"):
        try:
            os.makedirs(f"{database}/{name}", mode=0o700, exist_ok=True)
        except OSError as error:
            problems.append(f"{database}/{name}: {error.strerror}: create it")
    reservations.make_durable(database)
    if not os.path.isdir(CORE):
        problems.append(f"{CORE} is missing: {_REMEDY}")
    return problems
