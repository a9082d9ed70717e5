# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Only one lunshare works with a volume group.

Two of them would allocate the same extents, and finish each other's incomplete work.

- On one node: a process locks a file with the group's name, in a directory that only
  the daemon's user and root may enter. The kernel releases the lock however the
  process ends. (Any user could bind an abstract socket of that name.)
- On several nodes that share the disks: the group has a tag that names the node. The
  tag remains after a crash, and is the same afterwards, so the node can continue.
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

#: The lock files. A user who could enter it could prevent the daemon's start.
CLAIM_DIRECTORY = Path("/run/lunshare/claims")

#: 32 hexadecimal digits. It is empty or "uninitialized" in an image that has not
#: started yet, and in many containers (machine-id(5)).
MACHINE_ID = Path("/etc/machine-id")
_MACHINE_ID = re.compile(rb"[0-9a-f]{32}")
_TAG = re.compile(r"lunshare:[0-9a-f]{32}:[A-Za-z0-9.-]*")

# By group. Two backends of one process may share a group, one thin and one thick.
_locked_files: dict[str, int] = {}
_mutex = threading.Lock()


def lock_on_node(group: str) -> None:
    """Lock the group, so that no other process of this node works with it.

    :raises Misconfigured: another process has the lock, or the directory of lock
        files belongs to another user.
    """
    with _mutex:
        if group not in _locked_files:
            _locked_files[group] = _lock(group)


def _lock(group: str) -> int:
    path = CLAIM_DIRECTORY / group
    try:
        _create_directory()
        file = _open(path)
    except OSError as error:
        raise Misconfigured(
            f"claim on volume_group {group}: {error.strerror}, {path}",
            "run systemd-tmpfiles --create lunshare.conf, and lunshared as its user",
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise Misconfigured(
            f"volume_group {group}: another process of this node works with it",
            f"stop it; fuser -v {path} shows which ({error.strerror})",
        ) from None
    return file


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:  # started by hand as root: the unit must be able to open it
        os.fchown(file, CLAIM_DIRECTORY.stat().st_uid, -1)
    return file


def _create_directory() -> None:
    """Create it as systemd/lunshare.tmpfiles does, for a start without units."""
    CLAIM_DIRECTORY.parent.mkdir(mode=0o755, exist_ok=True)
    CLAIM_DIRECTORY.mkdir(mode=0o700, exist_ok=True)
    if CLAIM_DIRECTORY.stat().st_uid not in (0, os.geteuid()) and os.geteuid():
        raise PermissionError(errno.EACCES, "it belongs to another user")


def is_tagged_by_this_node(group: str, tags: Iterable[str]) -> bool:
    """Whether the group has this node's tag; False if it has no node's tag.

    :raises Misconfigured: it has another node's tag.
    """
    mine, node_tags = node_tag(), [tag for tag in tags if _TAG.fullmatch(tag)]
    for tag in node_tags:
        if tag.split(":")[1] != mine.split(":")[1]:
            raise Misconfigured(
                f"volume_group {group}: lunshare on node {tag.split(':')[2]}"
                " works with it",
                f"if that node does not use it any more: vgchange --deltag {tag}"
                f" {group}",
            )
    return bool(node_tags)


def node_tag() -> str:
    """Return this node's tag: a digest of its machine id, and its host name.

    The machine id itself is confidential (machine-id(5)).

    :raises Misconfigured: the node has no machine id. All such nodes would have the
        same tag.
    """
    try:
        machine = MACHINE_ID.read_bytes().strip()
    except OSError as error:
        raise _no_machine_id(str(error.strerror)) from None
    if not _MACHINE_ID.fullmatch(machine):
        raise _no_machine_id("it has no machine id")
    digest = hashlib.sha256(b"lunshare volume group " + machine).hexdigest()[:32]
    return f"lunshare:{digest}:{re.sub('[^A-Za-z0-9.-]', '-', socket.gethostname())}"


def _no_machine_id(problem: str) -> Misconfigured:
    return Misconfigured(
        f"this node has no machine id ({problem}): {MACHINE_ID}",
        "run systemd-machine-id-setup",
    )
