# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run clients in every order of their steps, also with a step of the target that fails.

A step is one transaction, or what a target does up to its next point. Jobs are clients
of their own. Where two orders come to the same state, only one of them is continued:
the database, the live target, and what each client has seen so far are the same, so
what follows is the same too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any

import pytest

from lunshare.agent.service.attachments import fencing
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.drivers.errors import TargetFailed
from tests.restart.interleaving import Abandoned, Client, Option, Order, next_choices
from tests.restart.node_states import Live, NodeStates, Rows

Seen = tuple[Rows, tuple[tuple[str, str], ...]]
#: Gets the rows and the live target between two steps.
Check = Callable[[Rows, Live, "Steps"], None]

#: Kinds of steps that do not commute: of two clients, one of each, or both of one.
_CONFLICTS = ({"read", "write"}, {"write"}, {"target"}, {"lock"})


class Steps(Order):
    """One order of steps. ``faults``: how many steps of the target may fail.

    ``trail``: what the order before had seen at each of the choices that are repeated.
    """

    def __init__(
        self,
        states: NodeStates,
        choices: Sequence[int] = (),
        trail: Sequence[Seen] = (),
        *,
        faults: int = 0,
        known: set[object] | None = None,
    ) -> None:
        super().__init__(states.node.assembly.database, choices)
        self._node_states, self.faults = states, faults
        self.trail: list[Seen] = list(trail[: len(choices)])
        self._known = known
        self._histories: dict[int, int] = {}
        self._failing: int | None = None
        self._asleep: set[Option] = set()
        self._ids: dict[int, int] = {}
        self.ended: dict[int, str] = {}
        self.failed = False

    def run_all(self, clients: Sequence[Client], check: Check) -> bool:
        """Run them; False: what follows is known from another order."""

        def visit() -> None:
            at = len(self.made)
            self.ended = self._answers(len(clients))
            if at < len(self._choices):
                return
            self.trail[at:] = [self._look()]
            key = self._key()
            if self._known is not None:
                if key in self._known:
                    raise Abandoned
                self._known.add(key)
            check(self._node_states.rows(), self._node_states.live(), self)

        try:
            self.run(clients, visit)
        except Abandoned:
            return False
        self.ended = self._answers(len(clients))
        check(self._node_states.rows(), self._node_states.live(), self)
        return True

    @property
    def is_running(self) -> bool:
        """Whether a client or a job has not ended."""
        return bool(self._states)

    def _answers(self, clients: int) -> dict[int, str]:
        """What the clients that have ended were answered."""
        return {
            number: result.result()
            for number, result in enumerate(self._results[:clients])
            if result.done()
        }

    def _look(self) -> Seen:
        live = self._node_states.live()
        return self._node_states.rows(), tuple(live.items())

    def _key(self) -> object:
        clients = (
            (state.name, state.place, state.ready(), self._histories.get(number))
            for number, state in self._states.items()
        )
        asleep = sorted((self._states[n].name, fails) for n, fails in self._asleep)
        answers = tuple(self.ended.items())
        return (
            self.trail[-1],
            tuple(sorted(clients)),
            answers,
            self.faults,
            tuple(asleep),
        )

    def _options(self, able: list[int]) -> list[Option]:
        options = super()._options(able)
        if self.faults:
            options += [(n, True) for n in able if self._kind(n) == "target"]
        awake = [option for option in options if option not in self._asleep]
        if not awake:
            raise Abandoned
        return awake

    def _kind(self, number: int) -> str:
        """What the next step of a client uses."""
        return self._states[number].place.partition(" ")[0]

    def _take(self, options: list[Option], choice: int) -> None:
        """Note what the client sees next: the database, or the target.

        Another order begins with each option before this one. Where that step and this
        one use different things, to do that step now comes to the same state.
        """
        number, fails = options[choice]
        earlier = self._asleep | set(options[:choice])
        self._asleep = {each for each in earlier if self._commute(each[0], number)}
        rows, live = self.trail[len(self.made) - 1]
        kind = self._kind(number)
        seen = {"read": rows, "write": rows, "target": live}.get(kind)
        if kind == "try":
            seen = frozenset(self._locked)
        history = self._histories.get(number)
        place = self._states[number].place
        self._histories[number] = hash((history, place, seen, fails))
        if fails:
            self.faults, self.failed, self._failing = self.faults - 1, True, number

    def _commute(self, one: int, other: int) -> bool:
        """Whether the next steps of two clients come to the same in either order."""
        kinds = {self._kind(one), self._kind(other)}
        if one == other or "try" in kinds:
            return False
        return kinds not in _CONFLICTS

    def _start_transaction(self, number: int, writes: bool) -> None:
        self._stop("write" if writes else "read")

    def _wait_for_lock(self, number: int, volume_id: str, waits: bool) -> None:
        if waits:
            self._stop("lock", lambda: volume_id not in self._locked)
        else:
            self._stop("try")

    def _pass(self, point: str) -> None:
        """A target has come to a point."""
        number = self._number
        if number is None or not point.startswith(("apply.", "remove.")):
            return
        self._stop(f"target {point}")
        if self._failing == number:
            self._failing = None
            raise TargetFailed("v", "because of the test")

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        super()._patch(patch)
        failures = self._node_states.node.target().failures
        patch.setattr(failures, "_watcher", self._pass)
        patch.setattr(JobRunner, "_pool", lambda *_: self)
        patch.setattr(fencing, "wait", self._wait_for_jobs)
        patch.setattr(uuid, "uuid4", self._new_id)

    def _new_id(self) -> uuid.UUID:
        """The same one in each order: jobs are started in the order of ids."""
        number = -1 if self._number is None else self._number
        count = self._ids[number] = self._ids.get(number, 0) + 1
        return uuid.UUID(int=(number + 2 << 64) + count, version=4)

    def submit(self, run: Callable[..., None], *given: Any) -> None:
        """Start a job; this is the executor of each pool."""
        (step, ident), _ = given
        names = {i: name for name, i in self._node_states.ids().items()}
        self._start(f"{step.__name__} {names.get(ident, '')}", lambda: run(*given))

    def _wait_for_jobs(self, jobs: Any, seconds: float) -> None:
        if seconds:
            self._stop("jobs", lambda: all(job.done() for job in jobs))
        wait(jobs, 0)


def every_step(
    states: NodeStates,
    begin: Callable[[], Sequence[Client]],
    check: Check,
    *,
    faults: int = 0,
) -> int:
    """Run clients in each order; ``begin`` returns them, with the same state each time.

    Return how many orders were begun.
    """
    orders, known = 0, set[object]()
    choices: list[int] | None = []
    trail: Sequence[Seen] = ()
    while choices is not None:
        order = Steps(states, choices, trail, faults=faults, known=known)
        order.run_all(begin(), check)
        orders += 1
        choices, trail = next_choices(order.made), order.trail
    return orders
