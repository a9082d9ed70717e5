# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One volume's iSCSI target: its portal group, its LUN 0, its portals.

It is enabled last. So an enabled target is a finished one, and whatever is
not enabled or not of the wanted disk is taken down and built anew.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from drivers.helper import access, backstores, disks
from drivers.helper.configfs import (
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
from drivers.helper.locks import Hold
from drivers.values import Disk, DiskKind, Portal

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


class Target:
    """Where the target of one volume is in configfs."""

    def __init__(self, prefix: str, volume_id: str) -> None:
        self.volume_id = volume_id
        self.name = f"volume-{volume_id}"
        self.path = f"{ISCSI}/{prefix}{self.name}"
        self.group = self.path + "/tpgt_1"
        self.lun = self.group + "/lun/lun_0"

    def acl(self, initiator: str) -> str:
        """Where the ACL of an initiator is."""
        return f"{self.group}/acls/{initiator}"

    def acls(self) -> list[str]:
        """The initiators that have an ACL."""
        return names(self.group + "/acls")

    def enabled(self) -> bool:
        """Whether hosts can log in: the last thing that is done to a target."""
        return look(self.group + "/enable") == "1"

    def backstore(self) -> str | None:
        """The backstore that LUN 0 leads to."""
        try:
            where = os.readlink(f"{self.lun}/{self.name}")
        except OSError:
            return None
        hba, name = where.rsplit("/", 2)[1:]
        return f"{CORE}/{hba}/{name}" if name == self.name else None


def finished(target: Target, disk: Disk) -> bool:
    """Whether the target was built to its end, for this disk."""
    through_lun = f"{target.lun}/{target.name}/udev_path"
    return target.enabled() and look(through_lun) == disk.path


def exports(target: Target, disk: Disk) -> bool:
    """Whether the target is finished and leads to the wanted disk."""
    if not target.enabled():
        return False
    path = target.backstore()
    return path is not None and backstores.sound(target.volume_id, disk, path)


def build(target: Target, disk: Disk, portals: Iterable[Portal], hold: Hold) -> None:
    """Make the target from nothing, all but its ACLs; it is not enabled yet."""
    built: list[str] = []
    hold.patiently(
        f"opening {disk.path}",
        lambda: built.append(backstores.build(target.volume_id, disk)),
    )
    os.mkdir(target.path)
    os.mkdir(target.group)
    for name, value in _ATTRIBUTES.items():
        write(f"{target.group}/attrib/{name}", value)
    os.mkdir(target.lun)
    os.symlink(built[0], f"{target.lun}/{target.name}")
    for portal in portals:
        _listen(f"{target.group}/np/{portal}")


def grow(target: Target, disk: Disk, hold: Hold) -> list[str]:
    """Show hosts the size that a file has now; they see it when they ask again."""
    if disk.kind is not DiskKind.FILE:
        return []
    path = target.backstore()
    if path is None or backstores.shows(path) >= disk.size:
        return []
    size = examine(disk, hold)
    backstores.show(path, size)
    return [f"disk of {target.name} shown with {size} bytes"]


def examine(disk: Disk, hold: Hold) -> int:
    """Whether the disk may be exported, as ``disks.checked``; its size in bytes.

    :raises DeadlineExceeded: its server does not answer.
    """
    found: list[int] = []
    hold.patiently(
        f"looking at {disk.path}", lambda: found.append(disks.checked(disk).st_size)
    )
    return found[0]


def enable(target: Target) -> None:
    """Let hosts log in."""
    write(target.group + "/enable", "1")


def mend(target: Target, portals: Iterable[Portal]) -> list[str]:
    """Put a live target's attributes and portals right, and disturb no session."""
    changes = []
    for name, value in _ATTRIBUTES.items():
        if settle(f"{target.group}/attrib/{name}", value):
            changes.append(f"{name} set to {value}")
    path = target.backstore()
    changes += backstores.settled(path) if path else []
    wanted = {str(portal) for portal in portals}
    for name in set(names(target.group + "/np")) - wanted:
        drop(f"{target.group}/np/{name}")
        changes.append(f"portal {name} removed")
    for name in sorted(wanted):
        if _listen(f"{target.group}/np/{name}"):
            changes.append(f"portal {name} made")
    return changes


def teardown(target: Target, hold: Hold) -> list[str]:
    """Take away the target and its backstore, whatever there is of them.

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
            access.shut(target.acl(initiator))
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
        access.remove(target.acl(initiator))
    for portal in names(target.group + "/np"):
        drop(f"{target.group}/np/{portal}")
    for lun in names(target.group + "/lun"):
        for link in links(f"{target.group}/lun/{lun}"):
            os.unlink(f"{target.group}/lun/{lun}/{link}")
        drop(f"{target.group}/lun/{lun}")
    drop(target.group)
    drop(target.path)
