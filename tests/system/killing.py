# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill a node at every step of its operations, and look at what its next life makes.

Two hosts use the shared volume of tests/system/lives.py all the time.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.system import groups, kernel, lives
from tests.system.daemons import Daemon, Forked
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import Session
from tests.system.waiting import wait_until

_WANTED = ("attaching", "attached")
_UNDER_WAY = {"creating", "deleting"}
_AT = 64
_TEST_UNIT_READY, _WORD_SECONDS = bytes(6), 5.0

#: Before the call, while it is done, before the last commit.
FEWEST = 3


class Bystander:
    """A host of the shared volume that nothing is ever asked of.

    It talks to the target all the time, as a host's kernel does. The target ends
    the session of a host that leaves a ping unanswered (15 s after the last word,
    then 30 s: include/target/iscsi/iscsi_target_core.h), and a life may take longer.
    """

    def __init__(self, volume: str, row: sqlite3.Row) -> None:
        self.host, self.mode = Host(row["attached_host"]), row["attach_mode"]
        info = json.loads(row["connection_info"])
        info |= {key: row[key] for key in ("auth_username", "auth_password")}
        self._live = Live(volume)
        self._session: Session = self.host.login(info)
        self._before = self._live.identity(self.host.initiator)
        self._turn, self._gone = threading.Lock(), threading.Event()
        threading.Thread(target=self._talk, daemon=True).start()

    def _talk(self) -> None:
        while not self._gone.wait(_WORD_SECONDS):
            with self._turn:
                self._session.command(_TEST_UNIT_READY)

    def leave(self) -> None:
        """Be a host no more."""
        self._gone.set()
        with self._turn:
            self.host.leave()

    def is_undisturbed(self, number: int) -> None:
        """Its session is the one it began with, and does what it is to do."""
        assert self._live.identity(self.host.initiator) == self._before
        with self._turn:
            if self.mode == "rw":
                self._session.write(_AT, block(f"life {number}"))
            else:
                assert self._session.read(_AT) == block(f"life {number}")
                assert write_protected(self._session, _AT)


class Node:
    """The state path that all lives share, and what is asserted between two."""

    def __init__(self, directory: Path, others: Path) -> None:
        """``others``: the database of a node that works beside this one."""
        self.daemon = Daemon(directory, node={"create_wait": 60})
        self._databases = (self.daemon.state / "lunshare.sqlite", others)
        self._strange = kernel.ours()
        self._bystanders: list[Bystander] = []
        self._looks = 0
        self._start()

    def dies_in(self, operation: str, step: int) -> bool:
        """Do an operation; whether it came to this step, and the node died there."""
        lives.say(self._end, {"operation": operation, "step": step})
        assert lives.hear(self._end) == [], self._life.said()
        self._has_bystanders()
        lives.say(self._end, "begin")
        if lives.hear(self._end) == []:
            self._is_right()
            return False
        assert self._life.ended() == -signal.SIGKILL, self._life.said()
        self._end.close()
        self._start()
        return True

    def _start(self) -> None:
        """The next life: when it has reconciled, all is right."""
        self._end, its = socket.socketpair()
        main = functools.partial(lives.live, parent=its)
        self._life = Forked(main, self.daemon.argv, self.daemon.directory / "log")
        its.close()
        assert lives.hear(self._end) == [], self._life.said()
        self._is_right()

    def close(self) -> None:
        self._end.close()
        self._life.kill()
        for each in self._bystanders:
            each.leave()
        self.daemon.start().clear()

    def _has_bystanders(self) -> None:
        """From the first life on two hosts use the shared volume."""
        if not self._bystanders:
            rows = _rows(self._databases[0], "volume_attachment")
            self._bystanders = [
                Bystander(row["volume_id"], row)
                for row in sorted(rows, key=lambda row: str(row["attach_mode"]))[::-1]
                if row["attached_host"] in ("writer", "watcher")
            ]
            assert [each.mode for each in self._bystanders] == ["rw", "ro"]

    def _is_right(self) -> None:
        """Kernel, disks and rows say the same; nothing is half-done."""
        self._looks += 1
        mine, _ = self._databases
        # A start goes on with what was being made or removed, and with slow
        # storage is ready before that is done.
        wait_until(
            lambda: not _UNDER_WAY & {r["status"] for r in _rows(mine, "volumes")}
        )
        volumes = {row["id"]: row["status"] for row in _rows(mine, "volumes")}
        rows = _rows(mine, "volume_attachment")
        assert set(volumes.values()) <= {"available"}
        assert {row["attach_status"] for row in rows} <= {*_WANTED, "reserved"}
        assert self._on_disk() == set(volumes)
        wanted: dict[str, dict[str, str]] = {}
        for row in rows:
            if row["initiator"] and row["attach_status"] in _WANTED:
                modes = wanted.setdefault(row["volume_id"], {})
                modes[row["initiator"]] = row["attach_mode"]
        assert self._mine(kernel.ours) == set(wanted)
        for volume in volumes:
            assert Live(volume).modes() == wanted.get(volume, {})
            assert Live(volume).gone == (volume not in wanted)
        attached = {r["attached_host"] for r in rows if r["attach_status"] in _WANTED}
        for each in self._bystanders:
            assert each.host.name in attached
            each.is_undisturbed(self._looks)

    def _on_disk(self) -> set[str]:
        """The volumes that have a logical volume."""
        path = f"/dev/{self.daemon.group}"
        names = os.listdir(path) if os.path.isdir(path) else []
        return {n.removeprefix("volume-") for n in names if n.startswith("volume-")}

    def _mine(self, found: Callable[[], set[str]]) -> set[str]:
        """What is there and not the other node's, which works meanwhile."""
        _, others = self._databases
        before = _rows(others, "volumes")
        there = found() - self._strange
        theirs = {row["id"] for row in [*before, *_rows(others, "volumes")]}
        return there - theirs


def _rows(path: Path, table: str) -> list[sqlite3.Row]:
    """What a database holds; nothing before it is made."""
    if not path.exists():
        return []
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    try:
        known = database.execute("SELECT name FROM sqlite_master").fetchall()
        if table not in {row["name"] for row in known}:
            return []
        return database.execute(f"SELECT * FROM {table} WHERE NOT deleted").fetchall()
    finally:
        database.close()


def lane(
    argv: list[str], directory: Path, others: Path, operations: Iterable[str]
) -> int:
    """Kill one node at every step of these operations; prints how many there are."""
    node = Node(directory, others)
    try:
        for operation in operations:
            steps = 0
            while node.dies_in(operation, steps + 1):
                steps += 1
            assert steps >= FEWEST, operation
            print(f"{operation}: killed at each of {steps} steps")
    finally:
        node.close()
        groups.remove_all()
    return 0
