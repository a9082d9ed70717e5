# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the root helper and its commands use: it says so itself on each scrape.

The daemon's sandbox hides the processes of others (ProtectProc). Without an answer in
time there are no figures, and one scrape at most waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lunshare.drivers.base import Root
from lunshare.drivers.errors import DriverError

_SECONDS = 1.0
_PROCESSES = (("helper", "helper"), ("commands", "used"))
_USES = (
    ("lunshare_helper_memory_bytes", "Resident memory.", "memory"),
    ("lunshare_helper_open_descriptors", "Open file descriptors.", "descriptors"),
    ("lunshare_helper_threads", "Threads.", "threads"),
)


@dataclass(frozen=True, eq=False)
class HelperUsage(Collector):
    """Asks ``helper``, a client of its own: its ``blocked`` is about nothing else."""

    helper: Root
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that to register the collector asks nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the figures of this moment; none if the helper does not answer."""
        if usage := self._usage():
            for name, text, key in _USES:
                sums = [(label, usage[part][key]) for label, part in _PROCESSES]
                yield _gauge(name, f"{text} Of the helper or its commands.", sums)
            commands: Mapping[str, Mapping[str, float]] = usage["commands"]
            text = "Commands that the helper has started and that run, by state."
            counts = [(state, row["count"]) for state, row in commands.items()]
            yield _gauge("lunshare_helper_commands", text, counts, "state")
            text = "How long the oldest of them has run, 0 without one."
            ages = [(state, row["oldest"]) for state, row in commands.items()]
            name = "lunshare_helper_oldest_command_seconds"
            yield _gauge(name, text, ages, "state")
            if "hosts" in usage:  # a helper of before has none
                yield from _of_hosts(usage["hosts"])

    def _usage(self) -> dict[str, Any] | None:
        if not self._mutex.acquire(blocking=False):
            return None
        try:
            usage: dict[str, Any] = self.helper.call("node.processes", timeout=_SECONDS)
            return usage
        except DriverError:  # lunshare_helper_blocked is about that
            return None
        finally:
            self._mutex.release()


def _of_hosts(figures: Mapping[str, int]) -> Iterator[Metric]:
    """Yield how much of the node's memory hosts hold, and what was done about it."""
    name = "lunshare_hosts_memory_bytes"
    text = "Memory of the node that commands of hosts hold."
    yield GaugeMetricFamily(name, text, figures["held"])
    text = "How much they may hold before their sessions are ended."
    yield GaugeMetricFamily("lunshare_hosts_memory_limit_bytes", text, figures["limit"])
    name = "lunshare_memory_takers"
    text = "How often a host's sessions were ended, or the host closed, for its memory."
    takers = CounterMetricFamily(name, text, labels=("what",))
    for what in ("ended", "closed"):
        takers.add_metric((what,), figures[what])
    yield takers


def _gauge(
    name: str, text: str, values: Iterable[tuple[str, float]], label: str = "process"
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for series, value in values:
        family.add_metric((series,), float(value))
    return family
