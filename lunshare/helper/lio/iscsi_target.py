# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One volume's iSCSI target: its portal group, its LUNs, its portals.

It is enabled last. So an enabled target is complete. A target that is not enabled, or
that exports another disk, is removed and created again.

LUN 0 of the portal group is the writers'. LUN 1, the readers', is created with the
first read-only host. Its link is created last, so a linked LUN is complete. Hosts do
not see these numbers: an ACL maps one of the two as LUN 0.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator

from lunshare.drivers.errors import InvalidValue, TargetFailed
from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Disk, DiskKind, Portal, iscsi_name
from lunshare.helper import disk_paths
from lunshare.helper.lio import acls, backstores, empty_acls, kept_acls
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import (
    create_object,
    links,
    names,
    read,
    read_or_empty,
    remove_object,
    write,
    write_if_different,
)
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

# A host without an ACL sees and reaches nothing, and a new mapped LUN is read-only.
# CHAP is required unless an ACL disables it, so an incomplete ACL refuses every login.
# No command carries data: one that reads, and does, is executed twice by the kernel,
# which then stops (6.12, docs/kernel-reports/read-with-data.md).
_ATTRIBUTES = {
    "attrib/generate_node_acls": "0",
    "attrib/demo_mode_discovery": "0",
    "attrib/demo_mode_write_protect": "1",
    "attrib/prod_mode_write_protect": "1",
    "attrib/cache_dynamic_acls": "0",
    "attrib/authentication": "1",
    "param/ImmediateData": "No",
    "param/DefaultTime2Retain": "0",  # no session without a connection: acls.close
}
# Those that concern the hosts which are let in from now on.
_FOR_NEW_HOSTS = (
    "attrib/prod_mode_write_protect",
    "param/ImmediateData",
    "param/DefaultTime2Retain",
)

# While the last portal of an address shuts down, its socket is still bound, and a new
# portal is refused: kernel_bind() -98 in the kernel's log, EINVAL from mkdir (6.1:
# iscsit_get_np skips a portal that is shutting down).
_SHUTDOWN_SECONDS, _PAUSE_SECONDS = 3.0, 0.01
_END_SECONDS = 2.0


def prepare_for_hosts(target: Target) -> None:
    """Prepare a target of Cinder's LVM driver for new hosts, before its full apply.

    It has the kernel's defaults: a new mapped LUN is writable (seen on 6.12), and a
    command may carry data.
    """
    for name in _FOR_NEW_HOSTS:
        write_if_different(f"{target.group}/{name}", _ATTRIBUTES[name])


def disk_path(target: Target) -> str:
    """Return the path of the disk that the target exports; empty when unknown."""
    links_ = (target.backstore_link(role) for role in Role)
    paths = (read_or_empty(f"{link}/udev_path") for link in links_)
    return next(filter(None, paths), "")


def stat_disk(disk: Disk, lock: TimedLock) -> os.stat_result | None:
    """Return the stat of what is at the disk's path; None when a device is missing.

    A device's path is in devtmpfs, where nothing hangs.

    :raises TargetFailed: a file may not be exported, or is missing.
    :raises DeadlineExceeded: the file's server does not answer.
    """
    if disk.kind is DiskKind.FILE:
        return check_disk(disk, lock)
    try:
        return os.stat(disk.path)
    except OSError:
        return None


def is_complete(target: Target, wanted: str) -> bool:
    """Whether the target is complete, for the disk of that identity."""
    return target.enabled() and target.has_disk(wanted)


def exports_disk(target: Target, disk: Disk, wanted: str) -> bool:
    """Whether the target is complete and exports the wanted disk."""
    return target.enabled() and lun_has_disk(target, disk, Role.WRITERS, wanted)


def create(
    target: Target, disk: Disk, portals: Iterable[Portal], lock: TimedLock
) -> str:
    """Create the target without its ACLs; it is not enabled yet.

    Returns the writers' backstore. ``link_lun`` links its LUN.
    """
    path = _create_backstore(target, disk, Role.WRITERS, lock)
    create_object(target.path)  # exists, if it has ACLs that are kept
    create_object(target.group)
    for name, value in _ATTRIBUTES.items():
        write(f"{target.group}/{name}", value)
    for portal in portals:
        _create_portal(f"{target.group}/np/{portal}")
    return path


def link_lun(target: Target, role: Role, path: str) -> None:
    """Link a LUN to its backstore."""
    create_object(target.lun(role))
    os.symlink(path, f"{target.lun(role)}/{target.name}")


def create_readers_lun(
    target: Target, disk: Disk, wanted: str, every: bool, lock: TimedLock
) -> list[str]:
    """Create the readers' LUN unless it exists; return the changes.

    ``every`` is whether all hosts of the target may be affected.

    :raises TargetFailed: it has another disk, and not all hosts may be affected.
    """
    if every and lun_has_disk(target, disk, Role.READERS, wanted):
        return []
    if (
        not every
        and read_or_empty(target.backstore_link(Role.READERS) + "/alias") == wanted
    ):
        return []
    if not every and links(target.lun(Role.READERS)):
        raise TargetFailed(
            target.volume_id, "its readers' LUN is outdated; a reconcile replaces it"
        )
    changes = remove_readers_lun(target, lock)
    link_lun(target, Role.READERS, _create_backstore(target, disk, Role.READERS, lock))
    return [*changes, f"readers' LUN of {target.name} created"]


def remove_readers_lun(target: Target, lock: TimedLock) -> list[str]:
    """Remove the readers' LUN, after its hosts, if a LUN can be; return the changes."""
    lun, paths = target.lun(Role.READERS), _backstores(target, Role.READERS)
    existed = os.path.isdir(lun)
    if empty_acls.stuck(target):
        return []
    if existed:
        for initiator in target.acls():
            if acls.maps(target.acl(initiator), lun):
                kept_acls.evict(target, initiator, lock)
        _remove_lun(lun)
    for path in paths:
        lock.run_step(f"closing {path}", backstores.destroy, path)
        existed = True
    return [f"readers' LUN of {target.name} removed"] if existed else []


def refresh_sizes(
    target: Target, disk: Disk, found: os.stat_result | None
) -> list[str]:
    """Update the size of a file; a host sees it when it rescans."""
    if disk.kind is not DiskKind.FILE or found is None:
        return []
    changes = []
    for role in Role:
        path = target.backstore(role)
        if path and backstores.reported_size(path) < min(disk.size, found.st_size):
            backstores.report_size(path, found.st_size)
            changes.append(
                f"size of {target.name} for {role} set to {found.st_size} bytes"
            )
    return changes


def check_disk(disk: Disk, lock: TimedLock) -> os.stat_result:
    """Check whether the disk may be exported, and return its stat.

    :raises TargetFailed: as ``disk_paths.check``.
    :raises DeadlineExceeded: its server does not answer.
    """
    statuses: list[os.stat_result] = []
    lock.run_step(
        f"checking {disk.path}", lambda: statuses.append(disk_paths.check(disk))
    )
    return statuses[0]


def enable(target: Target) -> None:
    """Let hosts log in."""
    write(target.group + "/enable", "1")


def differing(target: Target) -> Iterator[tuple[str, str]]:
    """Yield each attribute that the portal group has otherwise, and its value."""
    if not os.path.isdir(target.group):
        return
    for name, value in _ATTRIBUTES.items():
        if read(f"{target.group}/{name}") != value:
            yield name, value


def correct_group(target: Target, lock: TimedLock) -> list[str]:
    """Correct the attributes of the portal group; return the changes.

    It comes before a session is ended, which may wait for its disk: some of these
    attributes let hosts in. Those of a target of Cinder's driver wait for ``repair``.

    :raises DeadlineExceeded: the kernel still ends sessions for an earlier call.
    """
    changes: list[str] = []
    if not target.cinder_backstore():
        what = f"correcting the attributes of {target.name}"
        lock.run_step(what, lambda: changes.extend(_correct(target)))
    return changes


def repair(
    target: Target, disk: Disk, reservations: bool, portals: Iterable[Portal]
) -> list[str]:
    """Correct a live target's attributes and portals, without affecting sessions.

    Call it when no read-only host has the writers' LUN, which allows every command.
    """
    changes = _correct(target)
    for role in Role:
        if path := target.backstore(role):
            changes += backstores.repair(path, disk, role)
            changes += _set_online(target, role)
            if role is Role.WRITERS:
                changes += backstores.set_reservations(path, reservations)
    extra, missing = differing_portals(target, portals)
    for name in extra:
        remove_object(f"{target.group}/np/{name}")
        changes.append(f"portal {name} removed")
    for name in missing:
        if _create_portal(f"{target.group}/np/{name}"):
            changes.append(f"portal {name} created")
    return changes


def _correct(target: Target) -> list[str]:
    changes = []
    for name, value in differing(target):
        write(f"{target.group}/{name}", value)
        changes.append(f"{os.path.basename(name)} set to {value}")
    return changes


def differing_portals(
    target: Target, portals: Iterable[Portal]
) -> tuple[list[str], list[str]]:
    """Return the portals that it has and should not have, and those it has not."""
    addresses = {str(portal) for portal in portals}
    live = set(names(target.group + "/np"))
    return sorted(live - addresses), sorted(addresses - live)


def _set_online(target: Target, role: Role) -> list[str]:
    """Undo what a host's SET TARGET PORT GROUPS has done to a LUN's port."""
    if write_if_different(f"{target.lun(role)}/alua_tg_pt_offline", "0"):
        return [f"LUN of the {role} set online"]
    return []


def close_unknown_hosts(target: Target, lock: TimedLock) -> list[str]:
    """End the sessions of hosts without an ACL, which a person has let in.

    Such a session has no mapped LUN in configfs that could be write-protected. The
    kernel makes its own ACL visible when one of that name is created
    (core_tpg_add_initiator_node_acl, 6.1).

    :raises TargetFailed: the name of such a host cannot be that of an ACL.
    """
    lets_in = target.group + "/attrib/generate_node_acls"
    if read_or_empty(lets_in) == "1":
        write(lets_in, "0")
    closed: set[str] = set()
    while new := target.unknown_hosts() - closed:
        for initiator in sorted(new):
            name = _name_of_acl(target, initiator)
            create_object(target.acl(name))
            kept_acls.close(target, name, lock)
        closed |= new
    return [f"{initiator} closed, which had no ACL" for initiator in sorted(closed)]


def teardown(target: Target, lock: TimedLock) -> list[str]:
    """Remove the target and its backstores, also incomplete ones.

    Every access is write-protected before the first session is ended: the kernel ends
    them one after the other, and one may wait for a hung disk. When this returns,
    every session is ended, or dead, and its writes have landed. The removal of the LUNs
    waits for every command. What the kernel does not let go stays, see ``kept_acls``.

    :raises DeadlineExceeded: no host can log in any more, but writes in progress may
        still land.
    :raises TargetFailed: every host is closed, and no LUN can be removed.
    """
    changes, paths = [], _backstores(target)
    if os.path.isdir(target.path):
        for initiator in target.acls():
            acls.write_protect(target.acl(initiator))
        if empty_acls.stuck(target):
            for initiator in target.acls():
                kept_acls.close(target, initiator, lock)
            empty_acls.need_luns(target)
        if target.enabled():
            lock.run_step(f"ending the sessions of {target.name}", _disable, target)
        changes += _remove_objects(target, lock)
    for path in paths:
        lock.run_step(f"closing {path}", backstores.destroy, path)
        changes.append(f"backstore of {target.name} removed")
    return changes


def _name_of_acl(target: Target, initiator: str) -> str:
    """Return the name; the kernel takes any from a host, also a path."""
    try:
        return iscsi_name(initiator)
    except InvalidValue:
        why = f"host {initiator!a} is logged in without an ACL: end its session"
        raise TargetFailed(target.volume_id, why) from None


def _create_portal(portal: str) -> bool:
    """Create a portal; return whether it is new. Wait while an old one shuts down."""
    until = time.monotonic() + _SHUTDOWN_SECONDS
    while True:
        try:
            return create_object(portal)
        except OSError as error:
            if error.errno != errno.EINVAL or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


def _disable(target: Target) -> None:
    write(target.group + "/enable", "0")


def _remove_objects(target: Target, lock: TimedLock) -> list[str]:
    emptied = empty_acls.reasons(target) and not names(target.group + "/lun")
    _wait_for_sessions(target, lock, 0.0 if emptied else _END_SECONDS)
    empty_acls.unmap_all(target, lock)
    for lun in names(target.group + "/lun"):
        path = f"{target.group}/lun/{lun}"
        lock.run_step(f"closing {lun} of {target.name}", _remove_lun, path)
    lock.run_step(f"removing the ACLs of {target.name}", empty_acls.end_all, target)
    for portal in names(target.group + "/np"):
        remove_object(f"{target.group}/np/{portal}")
    if hosts := target.acls():
        stay = f"target of {target.name} emptied; the ACLs of {', '.join(hosts)} stay"
        return [] if emptied else [stay]
    remove_object(target.group)
    remove_object(target.path)
    return [f"target of {target.name} removed"]


def _wait_for_sessions(target: Target, lock: TimedLock, seconds: float) -> None:
    """Wait until none is left, or so long if only such are left that may never end.

    Those have no connection, or the kernel does not show them: it ends what it shows.
    The count includes sessions that were already closing, which its own wait skips.
    """
    until = time.monotonic() + seconds

    def ended() -> bool:
        if not target.sessions():
            return True
        hosts = map(target.acl, target.acls())
        live = (acls.in_session(acl) and not acls.is_dead(acl) for acl in hosts)
        return time.monotonic() >= until and not any(live)

    lock.wait_until(f"the end of the sessions of {target.name}", ended)


def _remove_lun(lun: str) -> None:
    for name in links(lun):
        os.unlink(f"{lun}/{name}")
    remove_object(lun)


def lun_has_disk(target: Target, disk: Disk, role: Role, wanted: str) -> bool:
    """Whether a LUN is linked to a correct backstore of the wanted disk."""
    path = target.backstore(role)
    return path is not None and backstores.is_correct(
        path, target.serial(), disk, role, wanted
    )


def _backstores(target: Target, *roles: Role) -> list[str]:
    """Return what is to be removed, also what is linked nowhere.

    Call it before links are removed: when rtslib restores a target at boot, it numbers
    the HBAs of its backstores anew.
    """
    chosen = roles or tuple(Role)
    linked = [path for role in chosen if (path := target.backstore(role))]
    linked += backstores.existing(target.volume_id, *chosen, prefix=target.prefix)
    linked += target.left_by_cinder() if Role.WRITERS in chosen else []
    return list(dict.fromkeys(linked))


def _create_backstore(target: Target, disk: Disk, role: Role, lock: TimedLock) -> str:
    """Create a backstore; this may wait for the disk.

    The readers' one gets the identity of a writers' one that was taken over.
    """
    built: list[str] = []
    group = export_paths.group_of(disk) if disk.kind is DiskKind.BLOCK else None
    prefix = target.prefix_for(group)
    like = (role is Role.READERS and target.cinder_backstore()) or ""
    lock.run_step(
        f"opening {disk.path}",
        lambda: built.append(backstores.create(disk, role, prefix, like)),
    )
    return built[0]
