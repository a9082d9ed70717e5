# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Explores what clients do to the access of two hosts, and every kill of the node.

Between two steps of the clients the invariants are checked, and what a kill there
leaves is kept. A second node over the same database and target starts on it: it is
killed at each of its own steps too. What was seen before is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.restart.access_invariants import (
    check_change,
    check_moment,
    check_rest,
    check_whole,
    writers,
)
from tests.restart.access_operations import LATE, Operation, Scene, end_all, exists
from tests.restart.every_step import Steps, every_step
from tests.restart.interleaving import Client
from tests.restart.node_states import Clock, Live, NodeStates, Rows, Saved
from tests.stands.node import Node

#: Operations that have ended, with their answers, which have to hold.
Promises = list[tuple[Operation, str]]


@dataclass(frozen=True)
class Killed:
    """What a kill leaves, and what was answered before it."""

    saved: Saved
    generation: int
    promises: Promises


@dataclass
class Counted:
    """How much was explored."""

    orders: int = 0
    steps: int = 0  # of the clients, in all orders
    moments: int = 0  # with those of the starts that follow
    kills: int = 0
    most_writers: int = 0

    def __str__(self) -> str:
        return (
            f"{self.orders} orders, {self.moments} moments between steps, kills that"
            f" left {self.kills} different states; most writers: {self.most_writers}"
        )


class Explorer:
    """Explores one node, and the one that follows it after a kill."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.node = Node(path).start()
        self._volume_id = self.node.shared_volume().id
        self._states = NodeStates(self.node, self._volume_id, clock)
        self._empty = self._states.save()
        self._next = NodeStates(Node(path).start(), self._volume_id, clock)
        self._known: set[object] = set()
        self._ended: set[object] = set()
        self._last: tuple[Rows, int] | None = None
        self.counted = Counted()

    def forget(self) -> None:
        """Begin anew, for a node that is another one."""
        self._known.clear()
        self._ended.clear()
        self.counted = Counted()

    def close(self) -> None:
        for states in (self._states, self._next):
            states.close()
            states.node.close()

    def begin(self, operations: Iterable[Operation]) -> Saved:
        """Return the state after these, one after the other; all must succeed."""
        self._states.restore(self._empty)
        for operation in operations:
            answer = operation.client(self._scene(self._states))()
            assert not answer.startswith("error"), answer
        unanswered = self.node.services.attachments.unanswered
        for _ in range(2):  # as the timer does a second later
            unanswered.mark_answered()
        return self._states.save()

    @staticmethod
    def _scene(states: NodeStates) -> Scene:
        return Scene(states.node, states.volume_id, states.ids(), states.clock)

    def explore(
        self, begun: Saved, clients: tuple[Operation, ...], faults: int = 0
    ) -> None:
        """Run the clients in every order, and kill the node at every step.

        ``faults``: how many steps of the target may fail.

        :raises AssertionError: an invariant does not hold.
        """
        left: dict[object, Killed] = {}
        self._states.restore(begun)
        if not all(exists(each, self._states.ids()) for each in clients):
            return

        def begin() -> list[Client]:
            self._states.restore(begun)
            scene, self._last = self._scene(self._states), None
            return [each.client(scene) for each in clients]

        def check(seen: Rows, live: Live, order: Steps) -> None:
            promises = _promises(clients, order.ended)
            self._check(seen, live, promises, left)
            self.counted.steps += 1
            if not (order.is_running or order.failed):
                check_rest(seen, live)

        self.counted.orders += every_step(self._states, begin, check, faults=faults)
        while left:
            self._start_on(left.popitem()[1], left)

    def _check(
        self, seen: Rows, live: Live, promises: Promises, left: dict[object, Killed]
    ) -> None:
        """Check one moment, and keep what a kill at this moment leaves."""
        self.counted.moments += 1
        most = max(self.counted.most_writers, len(writers(live)))
        self.counted.most_writers = most
        check_moment(seen, live)
        _check_promises(promises, live)
        generation = self._states.generation()
        if self._last is not None:
            before, smaller = self._last
            assert smaller <= generation, "the fencing generation shrinks"
            check_change(before, seen)
        self._last = seen, generation
        key = (seen, tuple(live.items()), tuple(map(str, promises)))
        if key not in self._known:
            self._known.add(key)
            saved = self._states.save()
            left[key] = Killed(saved, generation, promises)
            if seen.lent and not seen.due:  # all leases have ended at the next start
                late = replace(saved, seconds=saved.seconds + LATE)
                left[key, "late"] = Killed(late, generation, [])

    def _start_on(self, killed: Killed, left: dict[object, Killed]) -> None:
        """Start the next node on what a kill has left."""
        self.counted.kills += 1
        self._next.restore(killed.saved)
        self._last = self._next.rows(), killed.generation
        Steps(self._next).run_all(
            [self._start],
            lambda seen, live, _: self._check(seen, live, killed.promises, left),
        )
        seen, live = self._next.rows(), self._next.live()
        check_whole(seen, live)
        self._check_end(seen, live)

    def _start(self) -> str:
        outcome = self._next.node.assembly.reconcile.run()
        assert outcome.failed == []
        return ""

    def _check_end(self, seen: Rows, live: Live) -> None:
        """Check that the next clients can end every access."""
        key = (seen, tuple(live.items()))
        if key not in self._ended:
            self._ended.add(key)
            end_all(self._scene(self._next))
            assert self._next.live() == {}


def _promises(clients: tuple[Operation, ...], ended: dict[int, str]) -> Promises:
    """Return the answers that no other client may have undone."""
    return [
        (clients[number], answer)
        for number, answer in ended.items()
        if not any(
            clients[number].is_undone_by(other, answer)
            for at, other in enumerate(clients)
            if at != number
        )
    ]


def _check_promises(promises: Promises, live: Live) -> None:
    for operation, answer in promises:
        assert operation.is_kept(answer, live), f"{operation} was answered {answer}"
