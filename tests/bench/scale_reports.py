# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Many nodes at rest, and a storm of creates: what each part of a stock Cinder does."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.bench import process_costs
from tests.bench.figures import Figure, timed
from tests.bench.http import Client
from tests.bench.scale_stack import POOL, Nodes, ScaleStack, pool_report
from tests.fleet import api
from tests.stands.waiting import until

#: Cinder's defaults: report_interval, backend_stats_polling_interval.
_HEARTBEAT, _REPORT = 10.0, 60.0
_SAMPLE = 10.0  # each look at the queues costs the broker time
_DECISIONS, _CREATES, _CLIENTS = 15, 60, 16
_PATIENCE = 900.0
_AT_REST = ("cinder-scheduler", "RabbitMQ", "MariaDB")
# Not RabbitMQ: a create costs it less than what a second of reports varies by.
_OF_A_CREATE = ("cinder-api", "cinder-scheduler", "MariaDB")


@dataclass
class Rates:
    """In a second: processor time of each part, database statements, heartbeats."""

    cpu: dict[str, float] = field(default_factory=dict)
    statements: float = 0.0
    heartbeats: float = 0.0

    def above(self, rest: Rates) -> Rates:
        """What is more than at rest; the nodes may have had less time for it."""
        part = self.heartbeats / rest.heartbeats
        cpu = {name: value - part * rest.cpu[name] for name, value in self.cpu.items()}
        return Rates(cpu, self.statements - part * rest.statements)


@dataclass
class Window:
    """What happens between two moments."""

    stack: ScaleStack
    nodes: Nodes
    began: float = field(default_factory=time.monotonic)
    counts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes.ask("counted")
        self._cpu, self._statements = self.stack.cpu(), self.stack.status("Questions")

    def rates(self) -> Rates:
        """The rates until now."""
        self.counts = self.nodes.ask("counted")
        seconds = time.monotonic() - self.began
        cpu = {
            name: (value - self._cpu[name]) / seconds
            for name, value in self.stack.cpu().items()
        }
        done = self.stack.status("Questions") - self._statements
        return Rates(cpu, done / seconds, self.counts["heartbeats"] / seconds)


class ManyNodes:
    """Fake nodes in growing numbers, under one stock Cinder."""

    def __init__(self, stack: ScaleStack, nodes: Nodes) -> None:
        self.stack, self.nodes, self.rest = stack, nodes, Rates()
        self._client, self.count = stack.client(), 0
        self._type = api.shared_type(self._client, POOL)

    def grow(self, count: int) -> Iterator[Figure]:
        """Start nodes until there are so many, and measure them at rest."""
        self.nodes.ask("end")
        began, self.count = time.monotonic(), count
        self.nodes.ask("grow", count=count, report=pool_report(self.stack))
        self.nodes.ask("begin", heartbeat=_HEARTBEAT, report=_REPORT)
        until(lambda: self._known() == count, "the scheduler knows them", _PATIENCE)
        print(f"  {count} nodes after {time.monotonic() - began:.0f} s", flush=True)
        yield from map(self._here, self._at_rest())

    def decisions(self) -> Iterator[Figure]:
        """One choice, from cast to cast, with nothing else to choose."""
        times, window = list[float](), Window(self.stack, self.nodes)
        for _ in range(_DECISIONS):
            moments = self.nodes.done({self._post(self._client)}, _PATIENCE)
            times += [each["chosen"] - each["asked"] for each in moments.values()]
        assert len(times) == _DECISIONS
        above = window.rates().above(self.rest)
        seconds = time.monotonic() - window.began
        spent = above.cpu["cinder-scheduler"] * seconds / _DECISIONS
        yield self._here(Figure("one choice", statistics.median(times) * 1000, "ms"))
        yield self._here(Figure("one choice: scheduler", spent * 1000, "ms of CPU"))

    def storm(self) -> Iterator[Figure]:
        """Creates of many clients at the same time, until each volume is available."""
        window, creates = Window(self.stack, self.nodes), _CREATES
        waits, ids = list[float](), set[str]()

        def create(_: int) -> None:
            client, began = Client(self.stack.port), time.monotonic()
            ids.add(self._post(client))
            waits.append(time.monotonic() - began)
            client.close()

        with ThreadPoolExecutor(_CLIENTS) as pool:
            list(pool.map(create, range(creates)))
        done = self.nodes.done(ids, _PATIENCE)
        above = window.rates().above(self.rest)
        seconds = time.monotonic() - window.began
        yield self._here(Figure("creates", len(done) / seconds, "in a second"))
        yield self._here(Figure("creates that failed", creates - len(done), ""))
        fullest = Counter(each["node"] for each in done.values()).most_common(1)[0][1]
        yield self._here(Figure("of these on the node that has most", fullest, ""))
        for name, times in _moments(waits, done).items():
            yield self._here(Figure(name, statistics.median(times), "s"))
        for part in _OF_A_CREATE:
            spent = above.cpu[part] * seconds / creates
            yield self._here(Figure(f"a create: {part}", spent * 1000, "ms of CPU"))
        statements = above.statements * seconds / creates
        yield self._here(Figure("a create: database", statements, "statements"))

    def restart_scheduler(self) -> Figure:
        """A create that is sent when the scheduler starts: how long until a choice."""
        server = self.stack.servers["cinder-scheduler"]
        words = self.stack.scheduler_words()
        server.end()
        began = time.monotonic()
        server.run(words)
        done = self.nodes.done({self._post(self._client)}, _PATIENCE)
        (moments,) = done.values()
        seconds = moments["chosen"] - began
        return self._here(Figure("first choice after its start", seconds, "s"))

    def _at_rest(self) -> Iterator[Figure]:
        window, most = Window(self.stack, self.nodes), 0
        while time.monotonic() < window.began + _REPORT:
            messages = self.stack.broker.messages()
            waiting = [n for name, n in messages.items() if "scheduler" in name]
            most = max(most, sum(waiting))
            time.sleep(_SAMPLE)
        self.rest, counts = window.rates(), window.counts
        reports = counts["reports"] / (time.monotonic() - window.began)
        scheduler = self.rest.cpu["cinder-scheduler"]
        yield Figure("scheduler: one report", scheduler / reports * 1000, "ms of CPU")
        yield Figure("reports in a second", reports, "")
        for part in _AT_REST:
            yield Figure(f"{part}: of one core", self.rest.cpu[part] * 100, "%")
        yield Figure("database statements in a second", self.rest.statements, "")
        yield Figure("messages that wait for the scheduler, at most", most, "")
        yield Figure("a fake node is late by, at most", counts["late"], "s")
        answer = timed(self.stack.pools)
        yield Figure("cinder get-pools --detail", answer * 1000, "ms")
        yield from self._held()

    def _held(self) -> Iterator[Figure]:
        processes = self.stack.processes()
        for part in _AT_REST:
            yield Figure(f"{part}: memory", process_costs.pss(processes[part]), "MiB")
        open_files = process_costs.descriptors(processes["RabbitMQ"][0])
        yield Figure("RabbitMQ: descriptors", open_files, "")
        yield Figure("RabbitMQ: queues", len(self.stack.broker.messages()), "")
        yield Figure("MariaDB: clients", self.stack.status("Threads_connected"), "")

    def _known(self) -> int:
        try:
            return sum(f"@{POOL}#" in each for each in self.stack.pools())
        except (OSError, RuntimeError):
            return 0

    def _post(self, client: Client) -> str:
        asked = {"volume": {"size": 1, "volume_type": self._type}}
        return str(client("POST", "/volumes", asked)["volume"]["id"])

    def _here(self, figure: Figure) -> Figure:
        return Figure(f"{figure.name}, {self.count:,} nodes", figure.value, figure.unit)


def _moments(waits: list[float], done: Any) -> dict[str, list[float]]:
    """The seconds of each part of a create."""

    def between(first: str, last: str) -> list[float]:
        return [each[last] - each[first] for each in done.values()]

    chosen = between("asked", "chosen")
    return {
        "a create: answer of cinder-api": waits,
        "a create: waits for its choice, median": chosen,
        "a create: waits for its choice, longest": [max(chosen)],
        "a create: fake node": between("chosen", "done"),
    }


def figures(
    stack: ScaleStack, nodes: Nodes, levels: tuple[int, ...], keep: Callable[..., None]
) -> None:
    """All figures of this part, each given to ``keep``."""
    many = ManyNodes(stack, nodes)
    for level in levels:
        for figure in many.grow(level):
            keep(figure)
        for figure in (*many.decisions(), *many.storm()):
            keep(figure)
        keep(many.restart_scheduler())
    stack.start_second_scheduler()
    many.rest.cpu["cinder-scheduler"] *= 2  # both hear every report
    for figure in many.storm():
        name = figure.name.replace(" nodes", " nodes and two schedulers")
        keep(Figure(name, figure.value, figure.unit))
