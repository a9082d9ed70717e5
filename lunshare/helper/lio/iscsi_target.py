# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One volume's iSCSI target: its portal group, its LUNs, its portals.

It is enabled last. So an enabled target is complete. A target that is not enabled, or
that exports another disk, is removed and created again.

LUN 0 of the portal group is the writers'. LUN 1, the readers', is created with the
first read-only host. Its link is created last, so a linked LUN is complete. A host that
writes has another LUN of its own, of the writers' backstore, see ``lun_for``. Hosts do
not see these numbers: an ACL maps one of the LUNs as LUN 0.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from threading import Event

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Connector, Disk, DiskKind, Mode, Portal
from lunshare.helper import disk_paths
from lunshare.helper.lio import acls, backstores, empty_acls, kept_acls
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.begun_logins import LOGINS
from lunshare.helper.lio.configfs import (
    create_object,
    links,
    names,
    read_or_empty,
    remove_links,
    remove_object,
    write,
)
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

# A host without an ACL sees and reaches nothing, and a new mapped LUN is read-only.
# CHAP is required unless an ACL disables it, so an incomplete ACL refuses every login.
# No command carries data: one that reads, and does, is executed twice by the kernel,
# which then stops (6.12, docs/kernel-reports/read-with-data.md).
ATTRIBUTES = {
    "attrib/generate_node_acls": "0",
    "attrib/demo_mode_discovery": "0",
    "attrib/demo_mode_write_protect": "1",
    "attrib/prod_mode_write_protect": "1",
    "attrib/cache_dynamic_acls": "0",
    "attrib/authentication": "1",
    "param/ImmediateData": "No",
    "param/DefaultTime2Retain": "0",  # no session without a connection: acls.close
}
# While the last portal of an address shuts down, its socket is still bound, and a new
# portal is refused: kernel_bind() -98 in the kernel's log, EINVAL from mkdir (6.1:
# iscsit_get_np skips a portal that is shutting down).
_SHUTDOWN_SECONDS, _PAUSE_SECONDS = 3.0, 0.01
_END_SECONDS = 2.0
# The removal of one ACL takes less than a millisecond, or waits for a begun login.
_ACLS_SECONDS, _ACL_SECONDS = 0.25, 0.01


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
    for name, value in ATTRIBUTES.items():
        write(f"{target.group}/{name}", value)
    for portal in portals:
        create_portal(f"{target.group}/np/{portal}")
    return path


def create_portal(portal: str) -> bool:
    """Create a portal; return whether it is new. Wait while an old one shuts down."""
    until = time.monotonic() + _SHUTDOWN_SECONDS
    while True:
        try:
            return create_object(portal)
        except OSError as error:
            if error.errno != errno.EINVAL or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


def link_lun(target: Target, role: Role, path: str) -> None:
    """Link a LUN to its backstore."""
    create_object(target.lun(role))
    os.symlink(path, f"{target.lun(role)}/{target.name}")


def lun_for(target: Target, shared: bool, host: Connector) -> str:
    """Return the path of the LUN to map to a host; create it for a host that writes.

    The removal of its own LUN waits for the commands of this host, and for no other
    (docs/decisions/0048). ``shared``: hosts that write get the writers' LUN.

    :raises TargetFailed: every number that its LUN may have is in use.
    """
    if shared or host.mode is Mode.RO:
        return target.lun(backstores.ROLES[host.mode])
    backstore = str(target.writers_backstore())
    for lun in target.own_luns(host.initiator):
        if create_object(lun):
            os.symlink(backstore, f"{lun}/{target.name}")
            return lun
    raise TargetFailed(target.volume_id, f"no number is free for {host.initiator}")


def has_other_lun(target: Target, tag: str, luns: set[str], mode: Mode) -> bool:
    """Whether a LUN is mapped that is not for the mode, or that is being removed.

    ``tag`` and ``luns`` are those of the ACL. A host that writes may have the writers'
    LUN, from an older version.
    """
    if mode is Mode.RO or not (own := target.luns_of_hosts(luns)):
        role = backstores.ROLES[mode]
        return luns not in (set(), {os.path.basename(target.lun(role))})
    return tag == acls.FENCING or not all(map(target.is_linked, own))


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
        remove_lun(lun)
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


def _disable(target: Target) -> None:
    write(target.group + "/enable", "0")


def _remove_objects(target: Target, lock: TimedLock) -> list[str]:
    emptied = empty_acls.reasons(target) and not names(target.group + "/lun")
    _wait_for_sessions(target, lock, 0.0 if emptied else _END_SECONDS)
    empty_acls.unmap_all(target, lock)
    for lun in sorted(names(target.group + "/lun"), reverse=True):
        path = f"{target.group}/lun/{lun}"  # LUN 0 last: it says whose the target is
        lock.run_step(f"closing {lun} of {target.name}", remove_lun, path)
    if not _end_acls(target, lock):
        return [f"target of {target.name} emptied; a login that has begun holds it"]
    for portal in names(target.group + "/np"):
        remove_object(f"{target.group}/np/{portal}")
    if hosts := target.acls():
        stay = f"target of {target.name} emptied; the ACLs of {', '.join(hosts)} stay"
        return [] if emptied else [stay]
    remove_object(target.group)
    remove_object(target.path)
    return [f"target of {target.name} removed"]


def _end_acls(target: Target, lock: TimedLock) -> bool:
    """Remove the ACLs, or keep them closed; False if a login may hold one.

    None can begin any more. One that was not seen is left to the thread of the step:
    until it ends, the directory of the ACLs cannot be read.
    """
    hosts, given_up = target.acls(), Event()
    stay = bool(hosts) and LOGINS.may_exist(target.group)
    what = f"removing the ACLs of {target.name}"
    seconds = _ACLS_SECONDS + _ACL_SECONDS * len(hosts)
    if not lock.try_step(
        what, seconds, empty_acls.end_all, target, hosts, stay, given_up
    ):
        given_up.set()
    return not stay and not given_up.is_set()


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


def remove_lun(lun: str) -> None:
    """Remove a LUN that is mapped to no host; this waits for its commands."""
    remove_links(lun)
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
