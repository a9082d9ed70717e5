# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is counted and timed when it happens, and the page that Prometheus reads.

The values of every label are from the source or the configuration: routes, methods,
codes, backends, names of steps and timers. So there is a bounded number of them.
"""

from __future__ import annotations

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

from lunshare.drivers.drifts import DriftKind

# Otherwise every counter has a second series, the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: The text format of Prometheus.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_ACCESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_STEP = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BACKEND = ("backend",)


class Recorded:
    """The counters and histograms of one daemon. Any thread may use them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "lunshare_http_requests",
            "Answered requests, by method, route and status code.",
            ("method", "route", "code"),
            registry=registry,
        )
        self._request_seconds = Histogram(
            "lunshare_http_request_duration_seconds",
            "Time from a complete request to its answer, without the client's.",
            ("method", "route"),
            buckets=_REQUEST,
            registry=registry,
        )
        self._access_seconds = {
            what: Histogram(
                f"lunshare_{what}_duration_seconds",
                f"Time that a backend took for a host's {what} at its target.",
                _BACKEND,
                buckets=_ACCESS,
                registry=registry,
            )
            for what in ("attach", "detach")
        }
        self._access_failures = {
            what: Counter(
                f"lunshare_{what}_failures",
                f"A host's {what}es that failed at the target of a backend.",
                _BACKEND,
                registry=registry,
            )
            for what in ("attach", "detach")
        }
        self._job_seconds = Histogram(
            "lunshare_job_duration_seconds",
            "Time of each step of an operation, such as creating a disk or a copy.",
            ("backend", "step"),
            buckets=_STEP,
            registry=registry,
        )
        self._job_failures = Counter(
            "lunshare_job_failures",
            "Steps of operations that failed.",
            ("backend", "step"),
            registry=registry,
        )
        self._task_failures = Counter(
            "lunshare_background_failures",
            "Failed turns of timers, and disks that could not be wiped.",
            ("task",),
            registry=registry,
        )
        self._drift = Counter(
            "lunshare_reconcile_drift",
            "Differences that reconciles found between database and targets: changed"
            " or failed to change.",
            ("kind",),
            registry=registry,
        )
        self._kinds = Counter(
            "lunshare_drift",
            "Differences of a target from the database that no operation has made, by"
            " kind, each counted when it was found.",
            ("kind",),
            registry=registry,
        )
        self._lease_ends = Counter(
            "lunshare_lease_ends",
            "Leases of write access that have ended because nobody renewed them.",
            registry=registry,
        )
        self._reconciled = Gauge(
            "lunshare_reconcile_last_success_timestamp_seconds",
            "When the last reconcile ended, 0 before the first.",
            registry=registry,
        )
        self._reconcile_seconds = Gauge(
            "lunshare_reconcile_last_duration_seconds",
            "How long the last reconcile took.",
            registry=registry,
        )
        self._of_route: dict[tuple[str, str], Histogram] = {}
        self._of_code: dict[tuple[str, str, int], Counter] = {}

    def prepare(self, backends: list[str], tasks: list[str]) -> None:
        """Create the figures that are known before anything happens, as 0.

        An alert on an increase would miss the first failure otherwise.
        """
        for kind in ("changed", "failed"):
            self._drift.labels(kind)
        for drift_kind in DriftKind:
            self._kinds.labels(drift_kind.value)
        for task in tasks:
            self._task_failures.labels(task)
        for backend in backends:
            for what in self._access_seconds:
                self._access_seconds[what].labels(backend)
                self._access_failures[what].labels(backend)

    def request(self, method: str, route: str, code: int, seconds: float) -> None:
        """Count an answer. ``route`` is the template of the path."""
        if method not in _METHODS:
            method = "other"
        counter = self._of_code.get((method, route, code))
        if counter is None:
            counter = self._requests.labels(method, route, str(code))
            self._of_code[method, route, code] = counter
        counter.inc()
        timer = self._of_route.get((method, route))
        if timer is None:
            timer = self._request_seconds.labels(method, route)
            self._of_route[method, route] = timer
        timer.observe(seconds)

    def access(self, backend: str, what: str, seconds: float, failed: bool) -> None:
        """Count an "attach" or a "detach" at the target of a backend."""
        self._access_seconds[what].labels(backend).observe(seconds)
        if failed:
            self._access_failures[what].labels(backend).inc()

    def job(self, backend: str, step: str, seconds: float, failed: bool) -> None:
        """Count a step of an operation."""
        self._job_seconds.labels(backend, step).observe(seconds)
        if failed:
            self._job_failures.labels(backend, step).inc()

    def task_failed(self, task: str) -> None:
        """Count a failure of a timer, or of a wipe."""
        self._task_failures.labels(task).inc()

    def drifted(self, kind: str) -> None:
        """Count a difference of a target that was found."""
        self._kinds.labels(kind).inc()

    def lease_ended(self) -> None:
        """Count a lease whose time was over."""
        self._lease_ends.inc()

    def reconciled(self, changed: int, failed: int, seconds: float) -> None:
        """Note a reconcile that has ended, and how many differences it found."""
        self._drift.labels("changed").inc(changed)
        self._drift.labels("failed").inc(failed)
        self._reconciled.set(time.time())
        self._reconcile_seconds.set(seconds)


class Metrics:
    """What a daemon has recorded, and what it collects on a scrape."""

    def __init__(self, recorded: Recorded, *collectors: Collector) -> None:
        self._registry = recorded.registry
        for collector in collectors:
            self._registry.register(collector)

    def page(self) -> bytes:
        """Return all figures, in the format of CONTENT_TYPE."""
        return generate_latest(self._registry)
