# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step of what changes who may write, while a host writes.

At no moment may two hosts write; what was acknowledged is there, and nothing lands
later. A third host, which only reads, looks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system import groups, handed_volume
from tests.system.daemons import prepare
from tests.system.handed_volume import FOLLOWER, OPERATIONS, READER, WRITER
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.kill_at_steps import FEWEST, Node, rows_of
from tests.system.test_handover import Writes

pytestmark = [pytest.mark.system, pytest.mark.timeout(1820)]

_AT, _FOLLOWER_AT = 8, 64
#: What each run kills; ``make handovers`` all of them.
_USUAL = ("handover", "end of a lease")


class WrittenNode(Node):
    """The first host writes as fast as it can during each operation."""

    main = staticmethod(handed_volume.live)
    most = kills = 0

    def is_killed_in(self, operation: str, step: int) -> bool:
        """Do an operation while the hosts work; whether it was killed at this step."""
        killed = super().is_killed_in(operation, step)
        self.kills += killed
        self._check_hosts()
        return killed

    def _prepare(self) -> None:
        rows = rows_of(self.database, "volume_attachment")
        self._infos = {row["attached_host"]: _info(row) for row in rows}
        self._live = Live(rows[0]["volume_id"])
        self._hosts = {name: Host(name) for name in self._infos}
        self._reading = self._hosts[READER].login(self._infos[READER])
        session = self._hosts[WRITER].login(self._infos[WRITER])
        self._writes = Writes(session, _AT)
        self._writes.wait_for_progress()

    def _look_at_killed(self) -> None:
        self._count_writers()

    def _count_writers(self) -> set[str]:
        modes = self._live.modes().items()
        writers = {name.rpartition(":")[2] for name, mode in modes if mode == "rw"}
        self.most = max(self.most, len(writers))
        assert len(writers) <= 1, modes
        return writers

    def _check_hosts(self) -> None:
        writers = self._count_writers()
        if WRITER in writers:  # its session may have ended meanwhile
            self._writes.stop()
        else:
            self._writes.wait_for_end()
        landed = self._reading.read(_AT)
        assert landed in self._writes.possible()
        initiator = self._hosts[WRITER].initiator
        if WRITER not in writers and self._live.acl(initiator).exists():
            again = self._hosts[WRITER].login(self._infos[WRITER])
            assert write_protected(again, _AT)
        if FOLLOWER in writers:
            session = self._hosts[FOLLOWER].login(self._infos[FOLLOWER])
            session.write(_FOLLOWER_AT, block(f"kill {self.kills}"))
            assert self._reading.read(_FOLLOWER_AT) == block(f"kill {self.kills}")
        assert self._reading.read(_AT) == landed
        for host in self._hosts.values():
            host.leave()


def _info(row: Any) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(row["connection_info"])
    return info | {key: row[key] for key in ("auth_username", "auth_password")}


def test_one_host_writes_whatever_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    many = request.config.getoption("--handovers") >= 1000
    prepare()
    node = WrittenNode(tmp_path / "node", tmp_path / "none")
    try:
        for operation in OPERATIONS if many else _USUAL:
            steps = 0
            while node.is_killed_in(operation, steps + 1):
                steps += 1
            assert steps >= FEWEST, operation
            print(f"{operation}: killed at each of {steps} steps")
        print(f"{node.kills} kills; most writers: {node.most}")
    finally:
        node.close()
        groups.remove_all()
