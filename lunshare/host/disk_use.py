# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a disk of this host is in use, so that it must not be removed.

What root of another PID namespace sees of processes, or anybody but root, is less: only
their own. No file names a mapping without a descriptor, or a file that io_uring has
registered.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

_BLOCK_DEVICES = Path("/sys/class/block")
#: The uuid of a multipath map, or of a partition of it by kpartx(8).
_MULTIPATH = re.compile(r"(part\d+-)?mpath-")
#: They open every disk: udev's workers and their commands for a moment, and multipathd
#: for as long as a path is there, which ``multipath -f`` ends.
_WATCHERS = {"systemd-udevd", "udev-worker", "(udev-worker)", "multipathd"}


def in_use_problem(path: str) -> str:
    """Return why a disk must not be removed now, or "".

    A mount, a holder and a process are named. Whatever else has it exclusively (swap,
    a mount of a container) is found by an exclusive open, open(2). A multipath map is
    the disk itself, so what is looked at is its users.
    """
    path = os.path.realpath(path)
    names = list(_layers(os.path.basename(path)))
    devices = {f"/dev/{name}" for name in names}
    for mount in psutil.disk_partitions(all=True):
        if os.path.realpath(mount.device) in devices:
            return f"{path} is mounted on {mount.mountpoint}: unmount it first"
    for name in names:
        if holders := sorted(set(_holders(name)) - set(names)):
            return f"{path} is used by {', '.join(holders)}: deactivate that first"
    for name in sorted(names):
        if not _holders(name) and _is_exclusive(f"/dev/{name}"):
            return f"/dev/{name} is in use, such as for swap: end that first"
    if process := process_with(devices):
        return f"{path} is open in {process}: end that first"
    return ""


def process_with(devices: Iterable[str]) -> str:
    """Return a process that has one of the devices open, by id and name, or "".

    A device is found under any path below /dev. No other path is followed: it may be
    on a server that does not answer.
    """
    identities = {_identity(device) for device in devices} - {None}
    for process in psutil.process_iter():
        if any(_identity(file) in identities for file in _open_files(process.pid)):
            try:
                if not _is_watcher(process):
                    return f"process {process.pid} ({process.name()})"
            except psutil.NoSuchProcess:
                continue
    return ""


def _open_files(pid: int) -> Iterator[str]:
    """Yield the open files below /dev of a process that the caller may look at.

    psutil's open_files leaves devices out.
    """
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:  # it has ended, or is another user's
        return
    for name in names:
        if _target(f"{directory}/{name}").startswith("/dev/"):
            yield f"{directory}/{name}"


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # the file is closed
        return ""


def _is_watcher(process: psutil.Process) -> bool:
    """Whether it is one of the system's programs that look at every disk."""
    return any(
        ancestor.name() in _WATCHERS for ancestor in (process, *process.parents())
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Return kind and number of a device."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return stat.S_IFMT(status.st_mode), status.st_rdev


def _is_exclusive(device: str) -> bool:
    """Whether something has the device open for itself."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _layers(name: str) -> Iterator[str]:
    """Yield the kernel's names of a disk, its partitions, and multipath maps of it."""
    if not (_BLOCK_DEVICES / name).exists():
        return
    parts = [p.parent.name for p in _BLOCK_DEVICES.glob(f"{name}/*/partition")]
    for layer in (name, *parts):
        yield layer
        for holder in _holders(layer):
            if _is_multipath(holder):
                yield from _layers(holder)


def _holders(name: str) -> list[str]:
    """Return the devices that are made of a device."""
    try:
        return sorted(os.listdir(_BLOCK_DEVICES / name / "holders"))
    except FileNotFoundError:  # the device is gone
        return []


def _is_multipath(name: str) -> bool:
    try:
        uuid = (_BLOCK_DEVICES / name / "dm" / "uuid").read_text()
    except OSError:
        return False
    return _MULTIPATH.match(uuid) is not None
