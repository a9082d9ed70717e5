# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run several clients of one service in every order of their commits.

Only one client runs at a time. It stops before and after each writing transaction, and
before a volume's lock that another client has. Then a choice decides which client runs
next. ``every_order`` repeats this until it has made every choice. A job that a client
waits for belongs to that client; other jobs run whenever they can. The subclass in
tests/restart/every_step stops at more places.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.service.jobs.job_runner import JobRunner, Step
from lunshare.agent.volume_locks import VolumeLocks

Client = Callable[[], str]
#: Which client runs next, and whether the step that it is at fails.
Option = tuple[int, bool]

_PATIENCE = 30.0  # seconds until a client must have stopped again
_MOST = 2000  # orders of one test: more would take minutes


class Abandoned(BaseException):
    """This order is not run to its end. No Exception, so that no code handles it."""


@dataclass
class State:
    """A client that has not ended.

    ``ready``: whether what it waits for is there. ``place``: where it has stopped.
    ``idle``: it had no transaction since its last stop. ``wrote``: its last transaction
    was a writing one.
    """

    name: str
    ready: Callable[[], bool] = lambda: True
    place: str = "start"
    idle: bool = True
    wrote: bool = False


class Order:
    """One order of the clients' commits.

    ``choices`` are the first ones: positions among the options. After them the first
    option is taken. ``made`` has each choice, and among how many options it was.
    """

    def __init__(self, database: Database, choices: Sequence[int] = ()) -> None:
        self.made: list[tuple[int, int]] = []
        self._database, self._choices = database, choices
        self._condition = threading.Condition()
        self._states: dict[int, State] = {}
        self._results: list[Future[Any]] = []
        self._running: int | None = None
        self._abandoned = False
        self._locked: set[str] = set()
        self._threads: dict[int, int] = {}  # the clients to which threads belong

    def run(
        self, clients: Sequence[Client], check: Callable[[], None]
    ) -> tuple[str, ...]:
        """Return what the clients returned; call ``check`` between their steps.

        :raises Abandoned: ``check`` has raised it.
        """
        with pytest.MonkeyPatch.context() as patch:
            self._patch(patch)
            for number, client in enumerate(clients):
                self._start(f"client {number}", client)
            try:
                while able := self._wait_for_stop():
                    check()
                    self._resume(able)
            except BaseException:
                self._abandon()
                raise
        return tuple(self._results[n].result() for n in range(len(clients)))

    def _start(self, name: str, work: Callable[[], Any]) -> Future[Any]:
        """Add a client, with a thread of its own; return its result."""
        result: Future[Any] = Future()
        with self._condition:
            number = len(self._results)
            self._results.append(result)
            self._states[number] = State(name)
        threading.Thread(target=self._run, args=(number, work, result)).start()
        return result

    def _run(self, number: int, work: Callable[[], Any], result: Future[Any]) -> None:
        try:
            with self._belongs_to(number):
                # Abandoned, it ends at its first step, as others do.
                with self._condition, contextlib.suppress(Abandoned):
                    self._wait_for_turn(number)
                result.set_result(work())
        except BaseException as error:
            result.set_exception(error)
        finally:
            with self._condition:
                del self._states[number]
                if self._running == number:
                    self._running = None
                self._condition.notify_all()

    def _wait_for_stop(self) -> list[int]:
        """Wait until no client runs; return those that can, none if all have ended."""
        with self._condition:
            assert self._condition.wait_for(lambda: self._running is None, _PATIENCE)
            able = [n for n, state in self._states.items() if state.ready()]
            assert able or not self._states, f"a deadlock: {self._states}"
            return able

    def _resume(self, able: list[int]) -> None:
        at, options = len(self.made), self._options(able)
        choice = self._choices[at] if at < len(self._choices) else 0
        self.made.append((choice, len(options)))
        self._take(options, choice)
        with self._condition:
            self._running = options[choice][0]
            self._condition.notify_all()

    def _options(self, able: list[int]) -> list[Option]:
        """What can be next."""
        return [(number, False) for number in able]

    def _take(self, options: list[Option], choice: int) -> None:
        """One of these is next."""

    def _abandon(self) -> None:
        """End all clients where they are."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: not self._states, _PATIENCE)

    def _wait_for_turn(self, number: int) -> None:
        assert self._condition.wait_for(
            lambda: self._abandoned or self._running == number, _PATIENCE
        )
        if self._abandoned:
            raise Abandoned

    def _stop(self, place: str, ready: Callable[[], bool] = lambda: True) -> None:
        """Stop the running client, to which the calling thread belongs."""
        with self._condition:
            number = self._threads[threading.get_ident()]
            if not self._abandoned:
                assert self._running == number
                self._states[number].place = place
                self._states[number].ready, self._running = ready, None
                self._condition.notify_all()
            self._wait_for_turn(number)
            self._states[number] = State(self._states[number].name)

    @property
    def _number(self) -> int | None:
        """The client to which the calling thread belongs, if it does."""
        return self._threads.get(threading.get_ident())

    def _start_transaction(self, number: int, writes: bool) -> None:
        state = self._states[number]
        if not state.idle and (writes or state.wrote):
            self._stop("transaction")
        state = self._states[number]
        state.idle, state.wrote = False, writes

    @contextlib.contextmanager
    def _belongs_to(self, number: int) -> Iterator[None]:
        """The calling thread works for this client inside."""
        self._threads[threading.get_ident()] = number
        try:
            yield
        finally:
            del self._threads[threading.get_ident()]

    def _wait_for_lock(self, number: int, volume_id: str, waits: bool) -> None:
        if self._states[number].wrote or volume_id in self._locked:
            self._stop("lock", lambda: volume_id not in self._locked)

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        database, lock = self._database, VolumeLocks.volume
        reading, writing = database.reading, database.writing
        wait = JobRunner.run_and_wait

        @contextlib.contextmanager
        def read(**named: Any) -> Iterator[sa.Connection]:
            if self._number is not None:
                self._start_transaction(self._number, writes=False)
            with reading(**named) as connection:
                yield connection

        @contextlib.contextmanager
        def write() -> Iterator[sa.Connection]:
            if self._number is not None:
                self._start_transaction(self._number, writes=True)
            with writing() as connection:
                yield connection

        @contextlib.contextmanager
        def hold(
            locks: VolumeLocks, volume_id: str, purpose: str, *given: Any, **named: Any
        ) -> Iterator[None]:
            if self._number is None:
                with lock(locks, volume_id, purpose, *given, **named):
                    yield
                return
            self._wait_for_lock(self._number, volume_id, not named)
            with lock(locks, volume_id, purpose, *given, **named):
                self._locked.add(volume_id)
                try:
                    yield
                finally:
                    self._locked.remove(volume_id)

        def run_and_wait(
            jobs: JobRunner, step: Step, ident: str, *given: Any, **named: Any
        ) -> None:
            number = self._threads[threading.get_ident()]

            @functools.wraps(step)
            def owned(ident: str) -> None:
                with self._belongs_to(number):
                    step(ident)

            wait(jobs, owned, ident, *given, **named)

        patch.setattr(database, "reading", read)
        patch.setattr(database, "writing", write)
        patch.setattr(VolumeLocks, "volume", hold)
        patch.setattr(JobRunner, "run_and_wait", run_and_wait)


@dataclass
class Found:
    """How many orders there are, and the results of the clients in all of them."""

    orders: int = 0
    results: set[tuple[str, ...]] = field(default_factory=set)


def every_order(database: Database, run: Callable[[Order], tuple[str, ...]]) -> Found:
    """Call ``run`` with each order once."""
    found = Found()
    choices: list[int] | None = []
    while choices is not None:
        order = Order(database, choices)
        found.results.add(run(order))
        found.orders += 1
        assert found.orders < _MOST
        choices = next_choices(order.made)
    return found


def next_choices(made: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the first choices of the next order, None after the last order."""
    for at in reversed(range(len(made))):
        choice, options = made[at]
        if choice + 1 < options:
            return [*(each for each, _ in made[:at]), choice + 1]
    return None
