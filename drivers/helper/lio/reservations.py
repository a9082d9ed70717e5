# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Persistent reservations that outlive the target (SPC's APTPL bit).

The kernel writes the registrations of a volume to ``DBROOT/pr/aptpl_SERIAL`` when a
host has asked for that, and never reads them. So they are fed to a new backstore
before it is linked, which is the only time that the kernel takes them; each is live
again as soon as its host's LUN is mapped.

The kernel does not write that file when a host loses its LUN, though its keys are gone
then (6.1). Another process may not write it either: the kernel may be writing. So a
host that has left is noted in a file beside it, with the time of the kernel's last
write: what that write says of the host is void, and what a later one says is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping

from lunshare.drivers.helper.lio.configfs import ROOT, read, write
from lunshare.drivers.helper.lio.iscsi_target import Target

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
# Nobody has more than one mapped LUN, and it leads to the writers' LUN.
_PLACE = {"mapped_lun": "0", "target_lun": "0", "tpgt": "1"}

Entry = Mapping[str, str]


def durable(database: str) -> None:
    """Have the kernel's files written through to the medium, where that is offered.

    It answers PR OUT when the page cache has them (__core_scsi3_write_aptpl_to_file,
    6.1); a file in a synchronous directory (chattr +S, as ext4 has it) is synchronous.
    """
    path = f"{database}/pr"
    with contextlib.ExitStack() as stack:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            flags = bytearray(8)
            fcntl.ioctl(directory, _GET_FLAGS, flags)
            wanted = int.from_bytes(flags, sys.byteorder) | _SYNCHRONOUS
            fcntl.ioctl(directory, _SET_FLAGS, wanted.to_bytes(8, sys.byteorder))
        except OSError as error:
            LOG.info("%s: reservations may be lost with the power: %s", path, error)


def restore(
    target: Target, backstore: str, writers: Collection[str] | None
) -> list[str]:
    """Feed what is saved to a backstore that no LUN leads to; return what came back.

    ``writers``: every host that may write; others' registrations are void from now on.
    None: not all are known, so a registration waits in the kernel for its host.
    """
    changes = []
    for entry in _valid(target):
        host = entry["initiator_node"]
        if writers is not None and host not in writers:
            strike(target, host)
            continue
        words = ",".join(f"{name}={value}" for name, value in entry.items())
        write(backstore + "/pr/res_aptpl_metadata", words)
        changes.append(f"persistent reservation key of {host} restored")
    return changes


def strike(target: Target, initiator: str) -> None:
    """A host has lost its LUN: what is saved of it until now is void."""
    path = _path(target)
    with contextlib.suppress(FileNotFoundError):
        when = os.stat(path).st_mtime_ns
        if any(each["initiator_node"] == initiator for each in _entries(path)):
            _append(_notes(path), f"{when} {initiator}\n")


def forget(target: Target) -> None:
    """The volume has no host any more."""
    path = _path(target)
    for each in (path, _notes(path)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)


def _valid(target: Target) -> Iterator[Entry]:
    """What the kernel has written of this target, but for hosts that left since."""
    path = _path(target)
    try:
        when, entries = os.stat(path).st_mtime_ns, _entries(path)
    except FileNotFoundError:
        return
    void = _struck(path, when)
    wanted = {**_PLACE, "target_node": target.iqn}
    for entry in entries:
        if wanted.items() <= entry.items() and entry["initiator_node"] not in void:
            yield entry


def _struck(path: str, when: int) -> set[str]:
    """Hosts that left after the kernel's last write."""
    try:
        with open(_notes(path), encoding="ascii") as notes:
            lines = [line.split() for line in notes]
    except FileNotFoundError:
        return set()
    return {words[1] for words in lines if len(words) == 2 and words[0] == str(when)}


def _entries(path: str) -> list[dict[str, str]]:
    """The registrations in the kernel's file; one that was cut short is left out."""
    entries: list[dict[str, str]] = []
    entry: dict[str, str] = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("PR_REG_START:"):
                entry = {}
            elif line.startswith("PR_REG_END:") and "initiator_node" in entry:
                entries.append(entry)
            elif found := _WORD.fullmatch(line.strip()):
                entry[found[1]] = found[2]
    return entries


def _append(path: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    notes = os.open(path, flags, 0o600)
    try:
        os.write(notes, text.encode())
        os.fsync(notes)
    finally:
        os.close(notes)


def _path(target: Target) -> str:
    """Where the kernel keeps them: its name is the unit serial, the volume's id."""
    return f"{read(ROOT + '/dbroot')}/pr/aptpl_{target.volume_id}"


def _notes(path: str) -> str:
    return path + ".left"
