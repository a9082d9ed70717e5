# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A read-only host that sends arbitrary SCSI commands."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.system.lio_hosts import BLOCK
from tests.system.lio_node import PORT, Node, initiator
from tests.system.raw_iscsi import FLAGS, RawSession

PORTAL = f"127.0.0.1:{PORT}"


class Hostile:
    """The read-only host; it logs in again when the target ends its session."""

    def __init__(self, node: Node) -> None:
        self._node, self._session = node, self._login(node)

    def command(self, cdb: bytes, flag: str, data: bytes) -> str:
        return self._once(lambda: self._session.command(cdb, flag, data))

    def task(self, name: str) -> str:
        return self._once(lambda: self._session.task(name))

    def reads(self) -> str:
        """The answer to a READ, after the reset was reported (06h/29h)."""
        cdb = bytes([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0])
        answers = (self.command(cdb, "R", bytes(BLOCK)) for _ in range(len(FLAGS)))
        return next(each for each in answers if not each.startswith("06/"))

    def close(self) -> None:
        self._session.close()

    def _once(self, ask: Callable[[], str]) -> str:
        answer = ask()
        if answer.startswith(("Connection", "Broken", "Timeout", "rejected")):
            self._session.close()
            self._session = self._login(self._node)
        return answer

    @staticmethod
    def _login(node: Node) -> RawSession:
        return RawSession(initiator("b"), node.iqn, PORTAL)


def table(node: Node, answers: dict[tuple[str, str], str]) -> str:
    kind = f"{os.uname().release}, a {node.disk.kind}"
    lines = [f"\n{'command':28} {'flag':5} answer of LIO ({kind})"]
    lines += [
        f"{name:28} {flag:5} {answer}" for (name, flag), answer in answers.items()
    ]
    return "\n".join(lines)
