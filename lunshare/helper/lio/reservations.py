# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Persistent reservations that outlive the target (SPC's APTPL bit).

When a host has requested it, the kernel writes the registrations of a volume to
``DBROOT/pr/aptpl_SERIAL``. The kernel never reads this file. So the helper passes them
to a new backstore before it is linked: the kernel accepts them only then. Each is live
again as soon as its host's LUN is mapped.

When a host loses its LUN, its keys are gone, but the kernel does not update that file
(6.1). Another process must not write it, because the kernel may be writing. So a host
that was removed is recorded in a second file, with the time of the kernel's last
write: the host's entries of that write are void, those of a later write are valid.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from lunshare.helper.lio import acls, registrations
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import ROOT, read, read_or_empty, write
from lunshare.helper.lio.target_tree import Target

LOG = logging.getLogger(__name__)

# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_SYNC_FL (linux/fs.h; ioctl_iflags(2)).
_GET_FLAGS, _SET_FLAGS, _SYNCHRONOUS = 0x80086601, 0x40086602, 0x8

# The lines between PR_REG_START and PR_REG_END (core_scsi3_update_aptpl_buf), each a
# word that pr/res_aptpl_metadata takes (target_core_configfs.c, 6.1 and 6.12).
_WORD = re.compile(
    "(initiator_fabric|initiator_node|initiator_sid|sa_res_key|res_holder|res_type"
    "|res_scope|res_all_tg_pt|mapped_lun|target_fabric|target_node|tpgt|port_rtpi"
    "|target_lun)=([^,\\s]+)"
)
# A host that reserves has one mapped LUN, and it maps the writers' LUN. A registration
# was on a LUN of its host if that was mapped before reservations were allowed.
_LUN = {"target_lun": "0"}
_PLACE = {"mapped_lun": "0", **_LUN, "tpgt": "1"}

# The kernel shows one page of registrations, some 30 (6.1): a host may be behind it.
_SHOWN = 3_500

Entry = Mapping[str, str]


def make_durable(database: str) -> None:
    """Make the kernel's files synchronous, where the file system supports it.

    The kernel answers PR OUT when they are in the page cache
    (__core_scsi3_write_aptpl_to_file, 6.1). A new file in a synchronous directory
    (chattr +S, ext4 for one) is synchronous.
    """
    path = f"{database}/pr"
    with contextlib.ExitStack() as stack:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            flags = bytearray(8)
            fcntl.ioctl(directory, _GET_FLAGS, flags)
            new_flags = int.from_bytes(flags, sys.byteorder) | _SYNCHRONOUS
            fcntl.ioctl(directory, _SET_FLAGS, new_flags.to_bytes(8, sys.byteorder))
        except OSError as error:
            LOG.info("%s: reservations may be lost with the power: %s", path, error)


def entries_of(target: Target) -> list[Entry]:
    """Return the saved registrations that are not void, and live ones, for ``restore``.

    Call it before the target is removed: so that its repair drops no key.
    """
    live = [_PLACE | entry for entry in registrations.live(target)]
    ports = {_port(entry) for entry in live}
    return [*live, *(entry for entry in _valid(target) if _port(entry) not in ports)]


def restore(
    target: Target,
    backstore: str,
    entries: Iterable[Entry],
    writers: Collection[str] | None,
) -> list[str]:
    """Pass registrations to a backstore that is not linked; return the changes.

    ``writers`` are all hosts that may write; registrations of others become void.
    With None not all are known, so each registration waits in the kernel for its host.
    """
    changes = []
    for entry in entries:
        host = entry["initiator_node"]
        if writers is not None and host not in writers:
            void_saved(target, host)
            continue
        words = ",".join(f"{name}={value}" for name, value in entry.items())
        write(backstore + "/pr/res_aptpl_metadata", words)
        changes.append(f"persistent reservation key of {host} restored")
    return changes


def void_saved(target: Target, *initiators: str) -> None:
    """Record that hosts have lost their LUN: their saved registrations are void.

    Call it for hosts without a session, where every login is refused.
    """
    end_moved(target, *initiators)
    path = _path(target)
    with contextlib.suppress(FileNotFoundError):
        when = os.stat(path).st_mtime_ns
        saved = {entry["initiator_node"] for entry in _entries(path)}
        for initiator in saved.intersection(initiators):
            _note(path, when, initiator)


def end_moved(target: Target, *initiators: str) -> None:
    """End the registrations that a writer has moved to hosts without a mapped LUN.

    Those of a reader would stay in the writers' device when its ACL is freed
    (docs/kernel-reports/pr-register-and-move.md). The kernel ends a host's
    registrations with the device of a mapped LUN that it loses, so it gets that LUN,
    read-only, and loses it.
    """
    writers, link = target.lun(Role.WRITERS), target.backstore_link(Role.WRITERS)
    shown = read_or_empty(link + "/pr/res_pr_registered_i_pts")
    for initiator in initiators:
        acl = target.acl(initiator)
        may_be_there = initiator in shown or len(shown) > _SHOWN
        if may_be_there and os.path.isdir(acl) and not acls.is_stuck(acl):
            acls.map_lun(acl, writers)
            acls.unmap_at_once(acl)


def are_possible(target: Target) -> bool:
    """Whether the hosts of a live target may have any."""
    link = target.backstore_link(Role.WRITERS)
    return read_or_empty(link + "/attrib/emulate_pr") != "0"


def delete_saved(target: Target) -> None:
    """Delete the saved registrations of a volume that has no host any more."""
    path = _path(target)
    for file in (path, _notes(path)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)


def _valid(target: Target) -> Iterator[Entry]:
    """Yield the saved registrations of this target that are not void."""
    path = _path(target)
    try:
        when, entries = os.stat(path).st_mtime_ns, _entries(path)
    except FileNotFoundError:
        return
    void = _void_hosts(path, when)
    place = {**_PLACE, "target_node": target.iqn}
    for entry in (saved | _LUN for saved in entries):
        if place.items() <= entry.items() and entry["initiator_node"] not in void:
            yield entry


def _port(entry: Entry) -> tuple[str, str]:
    """Return which port of which host has a registration."""
    return entry["initiator_node"], entry.get("initiator_sid", "")


def _void_hosts(path: str, when: int) -> set[str]:
    """Return the hosts that were removed after the kernel's last write."""
    try:
        with open(_notes(path), encoding="ascii", errors="replace") as notes:
            lines = [line.split() for line in notes]
    except FileNotFoundError:
        return set()
    return {words[1] for words in lines if len(words) == 2 and words[0] == str(when)}


def _entries(path: str) -> list[dict[str, str]]:
    """Return the registrations in the kernel's file, without incomplete ones."""
    entries: list[dict[str, str]] = []
    entry: dict[str, str] = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("PR_REG_START:"):
                entry = {}
            elif line.startswith("PR_REG_END:") and "initiator_node" in entry:
                entries.append(entry)
            elif match := _WORD.fullmatch(line.strip()):
                entry[match[1]] = match[2]
    return entries


def _note(path: str, when: int, host: str) -> None:
    """Write it once. Lines of the kernel's earlier writes are worthless, and go.

    A new line comes first, because the power may have been lost in a line.
    """
    hosts = _void_hosts(path, when)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    notes = os.open(_notes(path), flags if hosts else flags | os.O_TRUNC, 0o600)
    try:
        line = f"\n{when} {host}\n".encode()
        if host not in hosts and os.write(notes, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(notes)
    finally:
        os.close(notes)


def _path(target: Target) -> str:
    """Return the path of the kernel's file, named by the serial, the volume's id."""
    return f"{read(ROOT + '/dbroot')}/pr/aptpl_{target.volume_id}"


def _notes(path: str) -> str:
    return path + ".left"
