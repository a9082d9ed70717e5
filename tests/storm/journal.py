# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of all clients and their answers, stored by the clients."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FOREVER = math.inf


@dataclass(slots=True)
class Op:
    """One request. ``status`` is None until it has an answer.

    ``done`` is the time when its effect was seen. That is later than the answer if the
    work continues after it. ``certain`` is whether its effect was seen.
    """

    number: int
    who: str
    what: str
    began: float
    objects: set[str]
    given: dict[str, Any]
    answered: float = FOREVER
    done: float = FOREVER
    status: int | None = None
    error: str = ""
    certain: bool = False
    result: str = ""
    #: Why the work failed after the answer, as the row shows it.
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it was acknowledged."""
        return self.status is not None and self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the answer means that nothing was done."""
        return self.status is not None and 400 <= self.status < 500


@dataclass(slots=True)
class Finding:
    """An invariant that does not hold, and the objects it is about."""

    invariant: str
    sentence: str
    objects: tuple[str, ...] = ()
    at: float = field(default_factory=time.monotonic)


class Journal:
    """Every operation in the order of its beginning; for any number of threads."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.ops: list[Op] = []
        self.findings: list[Finding] = []
        self._by_object: defaultdict[str, list[Op]] = defaultdict(list)
        self._numbers, self._mutex = itertools.count(1), threading.Lock()

    def begin(self, who: str, what: str, *objects: str, **given: Any) -> Op:
        """An operation is about to be asked for."""
        op = Op(next(self._numbers), who, what, time.monotonic(), set(), given)
        with self._mutex:
            self.ops.append(op)
        self.about(op, *objects)
        return op

    def about(self, op: Op, *objects: str) -> None:
        """It concerns these objects as well."""
        with self._mutex:
            for ident in objects:
                if ident not in op.objects:
                    op.objects.add(ident)
                    self._by_object[ident].append(op)

    def of(self, ident: str, *what: str) -> list[Op]:
        """The operations on an object, oldest first; of these kinds only."""
        with self._mutex:
            return [op for op in self._by_object[ident] if not what or op.what in what]

    def every(self, *what: str) -> list[Op]:
        """All operations of these kinds."""
        return [op for op in list(self.ops) if op.what in what]

    def find(self, invariant: str, sentence: str, *objects: str) -> None:
        """Note that an invariant does not hold, once for the same objects."""
        with self._mutex:
            known = {(found.invariant, found.objects) for found in self.findings}
            if (invariant, objects) not in known:
                self.findings.append(Finding(invariant, sentence, objects))

    @contextmanager
    def mark(self, who: str, what: str, *objects: str) -> Iterator[Op]:
        """Record what is not a request: a kill, a fault, a check."""
        op = self.begin(who, what, *objects)
        yield op
        op.answered = op.done = time.monotonic()

    def line(self, op: Op) -> str:
        """One operation for a reader; times in seconds since the storm began."""
        end = "-" if op.answered == FOREVER else f"{op.answered - self.start:.3f}"
        given = " ".join(f"{k}={v}" for k, v in op.given.items() if k != "marks")
        status = "no answer" if op.status is None else str(op.status)
        return (
            f"{op.began - self.start:8.3f} {end:>8} {op.who:<9} {op.what} {given}"
            f" {' '.join(sorted(op.objects))} -> {status} {op.result} {op.error[:160]}"
        )

    def last(self, idents: Iterable[str], at: float, count: int = 24) -> list[str]:
        """The last operations on any of these objects that started before ``at``.

        Refused ones are left out: they changed nothing.
        """
        found = {op.number: op for ident in idents for op in self.of(ident)}
        every = [found[number] for number in sorted(found)]
        ops = [op for op in every if op.began <= at and not op.refused]
        return [self.line(op) for op in ops[-count:]]
