# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host in a guest, which logs in to the portals of both nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fleet import api
from tests.fleet_nodes.node import Node
from tests.stands.waiting import until

Info = Mapping[str, Any]


class Host:
    """One initiator, with at most one session; it never logs in again by itself."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.name, self.iqn = node, name, api.iqn(name)
        self._session = -1

    def login(self, info: Info) -> bool:
        """Log in with what the attachment says; False if the target refuses."""
        given = (info["auth_username"], info["auth_password"])
        where = (info["target_iqn"], info["target_portal"])
        self._session = self.node.ask("login", self.iqn, *where, *given)
        return self._session >= 0

    def write(self, at: int, data: bytes) -> None:
        """Write blocks of 512 bytes."""
        self.node.ask("write", self._session, at, data)

    def read(self, at: int, count: int) -> bytes:
        """Read blocks."""
        return bytes(self.node.ask("read", self._session, at, count))

    @property
    def is_read_only(self) -> bool:
        """Whether the target answers its WRITE with DATA PROTECT, WRITE PROTECTED."""
        return bool(self.node.ask("is_refused", self._session, 0))

    @property
    def is_alive(self) -> bool:
        """Whether its session goes on."""
        return bool(self.node.ask("is_alive", self._session))

    def begin(self, mode: str) -> None:
        """Begin I/O without a pause."""
        self.node.ask("begin", self._session, mode)
        self.wait_for_progress()

    def wait_for_progress(self) -> int:
        """Wait for more I/O, which must not fail; the completed rounds."""
        before, _ = self._progress()
        until(
            lambda: self._progress()[0] > before + 1, f"I/O of {self.name} goes on", 60
        )
        return self._progress()[0]

    def stop(self) -> int:
        """End its I/O; the completed rounds."""
        rounds, error = self.node.ask("stop", self._session)
        assert not error, f"{self.name}: {error}"
        return int(rounds)

    def leave(self) -> None:
        """Drop its session, as a host that disappears."""
        self.node.ask("leave", self._session)

    def _progress(self) -> tuple[int, str]:
        rounds, error = self.node.ask("progress", self._session)
        assert not error, f"{self.name}: {error}"
        return int(rounds), str(error)
