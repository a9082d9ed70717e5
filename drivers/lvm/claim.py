# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lunshare works with a volume group.

Two would take each other's extents and finish each other's half-done work.

- Of one node: a process holds a lock on a file of the group's name, in a directory
  that only the daemon's user and root may enter; the kernel gives it back however
  the process ends. (A socket of that name, in no file system, any user could hold.)
- Of nodes that see the same disks: the group is tagged with the node. The tag
  outlives a crash and is the same after it, so the node itself always gets in.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from lunshare.drivers.errors import Misconfigured

#: Where claims are. Another user that could enter it could keep a daemon from starting.
CLAIMS = Path("/run/lunshare/claims")

_MACHINE = Path("/etc/machine-id")
_TAG = re.compile(r"lunshare:[0-9a-f]{32}:[A-Za-z0-9.-]*")

# Two backends of one process may share a group, one thin and one thick.
_held: dict[str, int] = {}
_mutex = threading.Lock()


def hold_on_node(group: str) -> None:
    """Let no other process of this node work with the group.

    :raises Misconfigured: one does, or the directory of such claims is not ours.
    """
    with _mutex:
        if group not in _held:
            _held[group] = _locked(group)


def _locked(group: str) -> int:
    path = CLAIMS / group
    try:
        _make_directory()
        file = _opened(path)
    except OSError as error:
        raise Misconfigured(
            f"claim on volume_group {group}, {path}: {error.strerror}",
            "run systemd-tmpfiles --create lunshare.conf, and lunshared as its user",
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise Misconfigured(
            f"volume_group {group}: another process of this node works with it",
            f"stop it; fuser -v {path} tells which ({error.strerror})",
        ) from None
    return file


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:  # a daemon that is started by hand: the unit's comes next
        os.fchown(file, CLAIMS.stat().st_uid, -1)
    return file


def _make_directory() -> None:
    """As systemd/lunshare.tmpfiles makes it, for who works without units."""
    CLAIMS.parent.mkdir(mode=0o755, exist_ok=True)
    CLAIMS.mkdir(mode=0o700, exist_ok=True)
    if CLAIMS.stat().st_uid not in (0, os.geteuid()) and os.geteuid():
        raise PermissionError(errno.EACCES, "it is another user's")


def is_mine(group: str, tags: Iterable[str]) -> bool:
    """Whether the group is tagged with this node; False if it is with none.

    :raises Misconfigured: another node has it.
    """
    mine, found = tag(), [each for each in tags if _TAG.fullmatch(each)]
    for each in found:
        if each.split(":")[1] != mine.split(":")[1]:
            raise Misconfigured(
                f"volume_group {group}: lunshare on node {each.split(':')[2]}"
                " works with it",
                f"if it does so no more: vgchange --deltag {each} {group}",
            )
    return bool(found)


def tag() -> str:
    """What this node writes on a group: a digest of its id, and its name for people.

    The id itself is confidential (machine-id(5)).

    :raises Misconfigured: the node has no id.
    """
    try:
        machine = _MACHINE.read_bytes().strip()
    except OSError as error:
        raise Misconfigured(
            f"{_MACHINE}: {error.strerror}", "run systemd-machine-id-setup"
        ) from None
    digest = hashlib.sha256(b"lunshare volume group " + machine).hexdigest()[:32]
    return f"lunshare:{digest}:{re.sub('[^A-Za-z0-9.-]', '-', socket.gethostname())}"
