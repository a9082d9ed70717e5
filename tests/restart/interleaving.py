# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run several clients of one service in every order of their commits.

Only one client runs at a time. It stops before and after each writing transaction, and
before a volume's lock that another client has. Then a choice decides which client runs
next. ``every_order`` repeats this until it has made every choice. A job that a client
waits for belongs to that client; other jobs run whenever they can.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.service.jobs.job_runner import JobRunner, Step
from lunshare.agent.volume_locks import VolumeLocks

Client = Callable[[], str]

_PATIENCE = 30.0  # seconds until a client must have stopped again
_MOST = 2000  # orders of one test: more would take minutes


@dataclass
class _State:
    """A client that has not ended.

    ``lock`` is the volume whose lock it waits for. ``idle``: it had no transaction
    since its last stop. ``wrote``: its last transaction was a writing one.
    """

    lock: str | None = None
    idle: bool = True
    wrote: bool = False


class Order:
    """One order of the clients' commits.

    ``choices`` are the first ones: positions among the clients that can run. After
    them the first of these clients runs. ``made`` has each choice, and among how many
    clients it was.
    """

    def __init__(self, database: Database, choices: Sequence[int] = ()) -> None:
        self.made: list[tuple[int, int]] = []
        self._database, self._choices = database, choices
        self._condition = threading.Condition()
        self._states: dict[int, _State] = {}
        self._running: int | None = None
        self._locked: set[str] = set()
        self._threads: dict[int, int] = {}  # the clients to which threads belong

    def run(
        self, clients: Sequence[Client], check: Callable[[], None]
    ) -> tuple[str, ...]:
        """Return what the clients returned; call ``check`` between their steps."""
        self._states = {number: _State() for number in range(len(clients))}
        with self._patched(), ThreadPoolExecutor(len(clients)) as pool:
            results = [pool.submit(self._run, *client) for client in enumerate(clients)]
            while able := self._wait_for_stop():
                check()
                self._resume(able)
        return tuple(result.result() for result in results)

    def _run(self, number: int, client: Client) -> str:
        with self._condition:
            self._wait_for_turn(number)
        try:
            with self._belongs_to(number):
                return client()
        finally:
            with self._condition:
                del self._states[number]
                self._running = None
                self._condition.notify_all()

    def _wait_for_stop(self) -> list[int]:
        """Wait until no client runs; return those that can, none if all have ended."""
        with self._condition:
            assert self._condition.wait_for(lambda: self._running is None, _PATIENCE)
            able = [n for n, s in self._states.items() if s.lock not in self._locked]
            assert able or not self._states, f"a deadlock: {self._states}"
            return able

    def _resume(self, able: list[int]) -> None:
        at = len(self.made)
        choice = self._choices[at] if at < len(self._choices) else 0
        self.made.append((choice, len(able)))
        with self._condition:
            self._running = able[choice]
            self._condition.notify_all()

    def _wait_for_turn(self, number: int) -> None:
        assert self._condition.wait_for(lambda: self._running == number, _PATIENCE)

    def _stop(self, lock: str | None = None) -> None:
        """Stop the running client, to which the calling thread belongs."""
        with self._condition:
            number = self._threads[threading.get_ident()]
            assert self._running == number
            self._states[number].lock, self._running = lock, None
            self._condition.notify_all()
            self._wait_for_turn(number)
            self._states[number] = _State()

    def _has_written(self) -> bool:
        return self._states[self._threads[threading.get_ident()]].wrote

    def _start_transaction(self, writes: bool) -> None:
        number = self._threads.get(threading.get_ident())
        if number is None:
            return
        state = self._states[number]
        if not state.idle and (writes or state.wrote):
            self._stop()
        self._states[number] = _State(idle=False, wrote=writes)

    @contextlib.contextmanager
    def _belongs_to(self, number: int) -> Iterator[None]:
        """The calling thread works for this client inside."""
        self._threads[threading.get_ident()] = number
        try:
            yield
        finally:
            del self._threads[threading.get_ident()]

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        database, lock = self._database, VolumeLocks.volume
        reading, writing = database.reading, database.writing
        wait = JobRunner.run_and_wait

        @contextlib.contextmanager
        def read(**named: Any) -> Iterator[sa.Connection]:
            self._start_transaction(writes=False)
            with reading(**named) as connection:
                yield connection

        @contextlib.contextmanager
        def write() -> Iterator[sa.Connection]:
            self._start_transaction(writes=True)
            with writing() as connection:
                yield connection

        @contextlib.contextmanager
        def hold(locks: VolumeLocks, volume_id: str, *given: Any) -> Iterator[None]:
            if threading.get_ident() not in self._threads:
                with lock(locks, volume_id, *given):
                    yield
                return
            if self._has_written() or volume_id in self._locked:
                self._stop(lock=volume_id)
            with lock(locks, volume_id, *given):
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

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "reading", read)
            patch.setattr(database, "writing", write)
            patch.setattr(VolumeLocks, "volume", hold)
            patch.setattr(JobRunner, "run_and_wait", run_and_wait)
            yield


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
        choices = _next_choices(order.made)
    return found


def _next_choices(made: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the first choices of the next order, None after the last order."""
    for at in reversed(range(len(made))):
        choice, able = made[at]
        if choice + 1 < able:
            return [*(each for each, _ in made[:at]), choice + 1]
    return None
