# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill a node at every step of its operations, and check what its next start repairs.

Two hosts use the shared volume of tests/system/killable_node.py all the time.
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

from tests.stands.waiting import until
from tests.system import groups, kernel, killable_node
from tests.system.daemons import Daemon, Forked
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import Session

_WANTED = ("attaching", "attached")
_IN_PROGRESS = {"creating", "deleting"}
_AT = 64
_TEST_UNIT_READY, _TALK_SECONDS = bytes(6), 5.0
_ANSWER_SECONDS = 150.0

#: Before the call, during the call, before the last commit.
FEWEST = 3


class Bystander:
    """A host of the shared volume that no operation changes.

    It sends commands all the time, as a host's kernel does. The target ends the
    session of a host that does not answer a ping (15 s after the last command, then
    30 s: include/target/iscsi/iscsi_target_core.h), and an operation may take longer.
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
        while not self._gone.wait(_TALK_SECONDS):
            with self._turn:
                self._session.command(_TEST_UNIT_READY)

    def leave(self) -> None:
        """Stop the commands and log out."""
        self._gone.set()
        with self._turn:
            self.host.leave()

    def assert_undisturbed(self, number: int) -> None:
        """Its first session still exists and works in its mode."""
        assert self._live.identity(self.host.initiator) == self._before
        with self._turn:
            if self.mode == "rw":
                self._session.write(_AT, block(f"start {number}"))
            else:
                assert self._session.read(_AT) == block(f"start {number}")
                assert write_protected(self._session, _AT)


class Node:
    """A state path that all starts share, and the checks between two starts."""

    main = staticmethod(killable_node.main)

    def __init__(self, directory: Path, others: Path) -> None:
        """``others``: the database of another node that runs at the same time."""
        self.daemon = Daemon(directory, node={"create_wait": 60})
        self.database = self.daemon.state / "lunshare.sqlite"
        self._databases = (self.database, others)
        self._foreign = kernel.exported_volumes()
        self._bystanders: list[Bystander] = []
        self._checks = 0
        self._start()

    def _prepare(self) -> None:
        """The rows are as before each operation; hosts may use them."""
        self._start_bystanders()

    def _look_at_killed(self) -> None:
        """Nothing has started after the kill yet."""

    def is_killed_in(self, operation: str, step: int) -> bool:
        """Do an operation; returns whether it reached this step and was killed."""
        killable_node.send(self._end, {"operation": operation, "step": step})
        assert self._answer(f"the scene of {operation}") == []
        self._prepare()
        killable_node.send(self._end, "begin")
        if self._answer(f"{operation} at step {step}") == []:
            self._assert_consistent()
            return False
        assert self._process.ended() == -signal.SIGKILL, self._process.output()
        self._end.close()
        self._look_at_killed()
        self._start()
        return True

    def _start(self) -> None:
        """Start the node; after its reconcile everything must be consistent."""
        self._end, its = socket.socketpair()
        self._end.settimeout(_ANSWER_SECONDS)
        main = functools.partial(self.main, parent=its)
        self._process = Forked(main, self.daemon.argv, self.daemon.directory / "log")
        its.close()
        failed = self._answer("a start")
        assert failed == [], failed
        self._assert_consistent()

    def _answer(self, waited_for: str) -> object:
        """What the node answers; None if it was killed."""
        try:
            answer = killable_node.receive(self._end)
        except TimeoutError:
            stacks = self._process.stacks()
            raise AssertionError(f"{waited_for}: no answer\n{stacks}") from None
        return answer

    def close(self) -> None:
        self._end.close()
        self._process.kill()
        for each in self._bystanders:
            each.leave()
        self.daemon.start().clear()

    def _start_bystanders(self) -> None:
        """From the first start on, two hosts use the shared volume."""
        if not self._bystanders:
            rows = rows_of(self._databases[0], "volume_attachment")
            self._bystanders = [
                Bystander(row["volume_id"], row)
                for row in sorted(rows, key=lambda row: str(row["attach_mode"]))[::-1]
                if row["attached_host"] in ("writer", "watcher")
            ]
            assert [each.mode for each in self._bystanders] == ["rw", "ro"]

    def _assert_consistent(self) -> None:
        """Kernel, disks and rows agree; no operation is incomplete."""
        self._checks += 1
        mine, _ = self._databases
        # A start continues creations and deletions, and with slow storage it is
        # ready before they end.
        until(
            lambda: not _IN_PROGRESS & {r["status"] for r in rows_of(mine, "volumes")}
        )
        volumes = {row["id"]: row["status"] for row in rows_of(mine, "volumes")}
        rows = rows_of(mine, "volume_attachment")
        assert set(volumes.values()) <= {"available"}
        assert {row["attach_status"] for row in rows} <= {*_WANTED, "reserved"}
        assert self._on_disk() == set(volumes)
        wanted: dict[str, dict[str, str]] = {}
        for row in rows:
            if row["initiator"] and row["attach_status"] in _WANTED:
                modes = wanted.setdefault(row["volume_id"], {})
                if row["fence"] != "all":
                    mode = "ro" if row["fence"] else row["attach_mode"]
                    modes[row["initiator"]] = mode
        assert self._mine(kernel.exported_volumes) == set(wanted)
        for volume in volumes:
            assert Live(volume).modes() == wanted.get(volume, {})
            assert Live(volume).gone == (volume not in wanted)
        attached = {r["attached_host"] for r in rows if r["attach_status"] in _WANTED}
        for each in self._bystanders:
            assert each.host.name in attached
            each.assert_undisturbed(self._checks)

    def _on_disk(self) -> set[str]:
        """The volumes that have a logical volume."""
        path = f"/dev/{self.daemon.group}"
        names = os.listdir(path) if os.path.isdir(path) else []
        return {n.removeprefix("volume-") for n in names if n.startswith("volume-")}

    def _mine(self, found: Callable[[], set[str]]) -> set[str]:
        """The volumes found, without those of the other node."""
        _, others = self._databases
        before = rows_of(others, "volumes")
        there = found() - self._foreign
        theirs = {row["id"] for row in [*before, *rows_of(others, "volumes")]}
        return there - theirs


def rows_of(path: Path, table: str) -> list[sqlite3.Row]:
    """The rows of a table; empty before the database is created."""
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
    """Kill one node at every step of these operations; prints the number of steps."""
    node = Node(directory, others)
    try:
        for operation in operations:
            steps = 0
            while node.is_killed_in(operation, steps + 1):
                steps += 1
            assert steps >= FEWEST, operation
            print(f"{operation}: killed at each of {steps} steps")
    finally:
        node.close()
        groups.remove_all()
    return 0
