# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What several LIO tests ask of a host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from lunshare.drivers.values import Auth
from tests.system.kernel import dismantle
from tests.system.lio_hosts import (
    BLOCK,
    DATA_PROTECT,
    READ,
    WRITE,
    LoginRefused,
    Refused,
    Session,
)
from tests.system.lio_node import CONFIGFS, MIB, SIZE, Node

ONE, TWO = b"1" * BLOCK, b"2" * BLOCK
WRITERS_AT = 4096  # their block; scsi_commands.py uses only the first
Make = Callable[[], Node]


def refused(node: Node, host: str, auth: Auth | None = None) -> bool:
    try:
        node.login(host, auth).logout()
    except LoginRefused:
        return True
    return False


def protected(call: Callable[..., object], *given: object) -> bool:
    """Whether the call fails because the LUN is write-protected (07h/27h)."""
    with pytest.raises(Refused) as caught:
        call(*given)
    return (caught.value.key, caught.value.ascq) == (DATA_PROTECT, 0x2700)


def filled(node: Node) -> bytes:
    """Fill the disk with one random MiB, so that its blocks differ; return it."""
    data = os.urandom(MIB)
    with open(node.disk.path, "r+b") as file:
        for _ in range(SIZE // MIB):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return data


def changed(node: Node, data: bytes) -> list[int]:
    """Return the MiB of the disk that are not ``data``, without the writers' blocks.

    One after the other: in User-mode Linux 6.12.101 each page may be a mapping of its
    own, and a process that has more than vm.max_map_count (65,530: 256 MiB) is ended.
    """
    line = ["dd", f"if={node.disk.path}", "bs=1M", "iflag=direct", "status=none"]
    theirs, left = divmod(WRITERS_AT * BLOCK, MIB)
    used = slice(left, left + 64 * BLOCK)
    changed = []
    with subprocess.Popen(line, stdout=subprocess.PIPE) as read:
        assert read.stdout is not None
        for number in range(SIZE // MIB):
            found = bytearray(read.stdout.read(MIB))
            if number == theirs:
                found[used] = data[used]
            if found != data:
                changed.append(number)
    assert read.returncode == 0
    return changed


def reserve_out(
    session: Session, action: int, keys: bytes, kind: int = 0, lasting: bool = False
) -> None:
    """PERSISTENT RESERVE OUT; ``lasting``: its keys outlive the target (APTPL)."""
    data = keys + bytes(4) + bytes([lasting, 0, 0, 0])
    session.command(bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]), WRITE, 24, data)


def reservation_keys(session: Session) -> set[bytes]:
    """The keys that are registered."""
    found = session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), READ, 255)
    length = int.from_bytes(found[4:8], "big")
    return {found[8 + at : 16 + at] for at in range(0, length, 8)}


def lose(node: Node) -> None:
    """Remove all of the target, as after a power cut."""
    (node.group / "enable").write_text("0")
    dismantle(node.group.parent)
    for store in CONFIGFS.glob(f"core/*/{node.name}*"):
        store.rmdir()
        store.parent.rmdir()
