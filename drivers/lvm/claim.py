# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lunshare works with a volume group.

Two would take each other's extents and finish each other's half-done work.

- Of one node: a process holds a socket of the group's name. It is in no file
  system, needs no right, and the kernel gives it back however the process ends.
- Of nodes that see the same disks: the group is tagged with the node. The tag
  outlives a crash and is the same after it, so the node itself always gets in.
"""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from drivers.errors import Misconfigured

_MACHINE = Path("/etc/machine-id")
_TAG = re.compile(r"lunshare:[0-9a-f]{32}:[A-Za-z0-9.-]*")

# Two backends of one process may share a group, one thin and one thick.
_held: dict[str, int] = {}
_mutex = threading.Lock()


def hold_on_node(group: str) -> None:
    """Let no other process of this node work with the group.

    :raises Misconfigured: one does.
    """
    with _mutex:
        if group in _held:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(f"\0lunshare/lvm/{group}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise Misconfigured(
                    f"volume_group {group}: another process of this node works with it",
                    f"stop it; ss -xlp src '*lunshare/lvm/{group}' tells which",
                ) from None
            _held[group] = claim.detach()


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
