# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One volume's iSCSI target: its portal group, its LUNs, its portals.

It is enabled last. So an enabled target is a finished one, and whatever is
not enabled or not of the wanted disk is taken down and built anew.

LUN 0 of the portal group is the writers'. LUN 1, the readers', is there from the
first read-only host on; its link is made last, so that a linked one is a finished
one. A host sees neither number: its ACL maps its own one of the two as LUN 0.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.helper.lio import acls, backstores, disk_paths
from lunshare.drivers.helper.lio.backstores import Role
from lunshare.drivers.helper.lio.configfs import (
    CORE,
    ISCSI,
    drop,
    links,
    look,
    make,
    names,
    settle,
    write,
)
from lunshare.drivers.helper.named_locks import Hold
from lunshare.drivers.values import Connector, Disk, DiskKind, Portal

# Nobody without an ACL sees or reaches anything, and a mapped LUN is born
# read-only. CHAP is asked for unless an ACL says no, so that an ACL that is
# half made lets nobody in.
_ATTRIBUTES = {
    "generate_node_acls": "0",
    "demo_mode_discovery": "0",
    "demo_mode_write_protect": "1",
    "prod_mode_write_protect": "1",
    "cache_dynamic_acls": "0",
    "authentication": "1",
}

# While the last portal of an address goes away its socket is still bound, and one
# made just then is refused: kernel_bind() -98 in the kernel's log, EINVAL to us
# (6.1: iscsit_get_np passes over what is shutting down).
_GOING_SECONDS, _PAUSE_SECONDS = 3.0, 0.01


_LUNS = {Role.WRITERS: "lun_0", Role.READERS: "lun_1"}


class Target:
    """Where the target of one volume is in configfs."""

    def __init__(self, prefix: str, volume_id: str) -> None:
        self.volume_id = volume_id
        self.name = f"volume-{volume_id}"
        self.iqn = prefix + self.name
        self.path = f"{ISCSI}/{self.iqn}"
        self.group = self.path + "/tpgt_1"

    def lun(self, role: Role) -> str:
        """Where the LUN of the writers or of the readers is."""
        return f"{self.group}/lun/{_LUNS[role]}"

    def lun_of(self, connector: Connector) -> str:
        """Where the LUN is that a host may be given."""
        return self.lun(backstores.ROLES[connector.mode])

    def linked(self, role: Role) -> str:
        """The backstore's directory as one goes there through the LUN."""
        return f"{self.lun(role)}/{self.name}"

    def acl(self, initiator: str) -> str:
        """Where the ACL of an initiator is."""
        return f"{self.group}/acls/{initiator}"

    def acls(self) -> list[str]:
        """The initiators that have an ACL."""
        return names(self.group + "/acls")

    def enabled(self) -> bool:
        """Whether hosts can log in: the last thing that is done to a target."""
        return look(self.group + "/enable") == "1"

    def backstore(self, role: Role) -> str | None:
        """The backstore that a LUN leads to."""
        try:
            where = os.readlink(self.linked(role))
        except OSError:
            return None
        hba, name = where.rsplit("/", 2)[1:]
        wanted = backstores.name_of(self.volume_id, role)
        return f"{CORE}/{hba}/{name}" if name == wanted else None


def look_at(disk: Disk, hold: Hold) -> os.stat_result | None:
    """What is at the disk's path now; None when a device is missing.

    A device's path is in devtmpfs, where nothing hangs.

    :raises TargetFailed: a file may not be exported, or is missing.
    :raises DeadlineExceeded: the file's server does not answer.
    """
    if disk.kind is DiskKind.FILE:
        return examine(disk, hold)
    try:
        return os.stat(disk.path)
    except OSError:
        return None


def finished(target: Target, wanted: str) -> bool:
    """Whether the target was built to its end, for the disk of that identity."""
    return target.enabled() and backstores.holds(target.linked(Role.WRITERS), wanted)


def exports(target: Target, disk: Disk, wanted: str) -> bool:
    """Whether the target is finished and leads to the wanted disk."""
    return target.enabled() and _leads(target, disk, Role.WRITERS, wanted)


def build(target: Target, disk: Disk, portals: Iterable[Portal], hold: Hold) -> str:
    """Make the target from nothing, all but its ACLs; it is not enabled yet.

    Returns the writers' backstore. Its LUN is linked by ``link``.
    """
    path = _opened(disk, Role.WRITERS, hold)
    os.mkdir(target.path)
    os.mkdir(target.group)
    for name, value in _ATTRIBUTES.items():
        write(f"{target.group}/attrib/{name}", value)
    for portal in portals:
        _listen(f"{target.group}/np/{portal}")
    return path


def link(target: Target, role: Role, path: str) -> None:
    """Lead a LUN to its backstore."""
    make(target.lun(role))
    os.symlink(path, target.linked(role))


def serve_readers(
    target: Target, disk: Disk, wanted: str, every: bool, hold: Hold
) -> list[str]:
    """Make the readers' LUN unless it is there; return what was changed.

    ``every``: whether each host of the target may be touched for it.

    :raises TargetFailed: it leads to another disk, and not every host may be touched.
    """
    if every and _leads(target, disk, Role.READERS, wanted):
        return []
    if not every and look(target.linked(Role.READERS) + "/alias") == wanted:
        return []
    if not every and links(target.lun(Role.READERS)):
        raise TargetFailed(
            target.volume_id, "its readers' LUN is to be made anew, by a reconcile"
        )
    changes = dismiss_readers(target, hold)
    link(target, Role.READERS, _opened(disk, Role.READERS, hold))
    return [*changes, f"readers' LUN of {target.name} made"]


def dismiss_readers(target: Target, hold: Hold) -> list[str]:
    """Take the readers' LUN away, and each host from it; return what was changed."""
    lun = target.lun(Role.READERS)
    found = os.path.isdir(lun)
    if found:
        for initiator in target.acls():
            if acls.maps(target.acl(initiator), lun):
                acls.displace(target.acl(initiator), hold)
        _drop_lun(lun)
    for path in backstores.existing(target.volume_id, Role.READERS):
        hold.patiently(f"closing {path}", backstores.destroy, path)
        found = True
    return [f"readers' LUN of {target.name} removed"] if found else []


def grow(target: Target, disk: Disk, found: os.stat_result | None) -> list[str]:
    """Show hosts the size that a file has now; they see it when they ask again."""
    if disk.kind is not DiskKind.FILE or found is None:
        return []
    changes = []
    for role in Role:
        path = target.backstore(role)
        if path and backstores.shows(path) < min(disk.size, found.st_size):
            backstores.show(path, found.st_size)
            changes.append(
                f"disk of {target.name} shown to {role} with {found.st_size} bytes"
            )
    return changes


def examine(disk: Disk, hold: Hold) -> os.stat_result:
    """Whether the disk may be exported, as ``disk_paths.checked``, and what it is.

    :raises DeadlineExceeded: its server does not answer.
    """
    found: list[os.stat_result] = []
    hold.patiently(
        f"looking at {disk.path}", lambda: found.append(disk_paths.checked(disk))
    )
    return found[0]


def enable(target: Target) -> None:
    """Let hosts log in."""
    write(target.group + "/enable", "1")


def mend(target: Target, disk: Disk, portals: Iterable[Portal]) -> list[str]:
    """Put a live target's attributes and portals right, and disturb no session.

    Every read-only host has left the writers' LUN, whose commands are all switched on.
    """
    changes = []
    for name, value in _ATTRIBUTES.items():
        if settle(f"{target.group}/attrib/{name}", value):
            changes.append(f"{name} set to {value}")
    for role in Role:
        path = target.backstore(role)
        changes += backstores.mended(path, disk, role) if path else []
    wanted = {str(portal) for portal in portals}
    for name in set(names(target.group + "/np")) - wanted:
        drop(f"{target.group}/np/{name}")
        changes.append(f"portal {name} removed")
    for name in sorted(wanted):
        if _listen(f"{target.group}/np/{name}"):
            changes.append(f"portal {name} made")
    return changes


def teardown(target: Target, hold: Hold) -> list[str]:
    """Take away the target and its backstores, whatever there is of them.

    Every access is shut before the first session is ended, for the kernel ends
    them one after the other, and one may wait for a hung disk. Every session is
    ended and its writes have landed when this returns. The count of sessions is
    asked as well: it also holds those that were already closing by themselves,
    which the kernel's own wait passes over.

    :raises DeadlineExceeded: no host can log in any more, but writes that were
        under way may still land.
    """
    changes = []
    if os.path.isdir(target.path):
        for initiator in target.acls():
            acls.shut(target.acl(initiator))
        if target.enabled():
            hold.patiently(f"ending the sessions of {target.name}", _disable, target)
        hold.until(f"the end of the sessions of {target.name}", lambda: _idle(target))
        _dismantle(target)
        changes.append(f"target of {target.name} removed")
    for path in backstores.existing(target.volume_id):
        hold.patiently(f"closing {path}", backstores.destroy, path)
        changes.append(f"backstore of {target.name} removed")
    return changes


def _listen(portal: str) -> bool:
    """Make a portal; whether it was missing. Waits for one that is going away."""
    until = time.monotonic() + _GOING_SECONDS
    while True:
        try:
            return make(portal)
        except OSError as error:
            if error.errno != errno.EINVAL or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


def _disable(target: Target) -> None:
    write(target.group + "/enable", "0")


def _idle(target: Target) -> bool:
    path = target.path + "/fabric_statistics/iscsi_instance/sessions"
    return look(path) in ("", "0")


def _dismantle(target: Target) -> None:
    for initiator in target.acls():
        acls.remove(target.acl(initiator))
    for portal in names(target.group + "/np"):
        drop(f"{target.group}/np/{portal}")
    for lun in names(target.group + "/lun"):
        _drop_lun(f"{target.group}/lun/{lun}")
    drop(target.group)
    drop(target.path)


def _drop_lun(lun: str) -> None:
    for name in links(lun):
        os.unlink(f"{lun}/{name}")
    drop(lun)


def _leads(target: Target, disk: Disk, role: Role, wanted: str) -> bool:
    path = target.backstore(role)
    return path is not None and backstores.sound(
        path, target.volume_id, disk, role, wanted
    )


def _opened(disk: Disk, role: Role, hold: Hold) -> str:
    """A new backstore; its opening may wait for the disk."""
    built: list[str] = []
    hold.patiently(
        f"opening {disk.path}", lambda: built.append(backstores.build(disk, role))
    )
    return built[0]
