# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logins that have begun under a host's name and do not go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.system.hostile_host import PORTAL
from tests.system.lio_node import Node, initiator
from tests.system.raw_iscsi import UnfinishedLogin


class _Queued(UnfinishedLogin):
    """It does not wait for the answer: the kernel takes one login at a time."""

    def _receive(self) -> tuple[bytes, bytes]:
        return bytes([0x23, *bytes(47)]), b""


@contextlib.contextmanager
def begun(node: Node, host: str, count: int) -> Iterator[None]:
    """Inside the ``with`` block so many logins have begun; the first holds the ACL."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            kind = _Queued if number else UnfinishedLogin
            login = kind(initiator(host), node.iqn, PORTAL, number=number % 256)
            stack.enter_context(contextlib.closing(login))
        yield
