# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Values at the moment of a scrape: from memory, a small table and the leases.

Nothing here reads storage, waits for a backend, or costs more with more volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from oslo_log import log
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lunshare.agent.backends import Backends, NodeBackend
from lunshare.agent.db import due_attachments
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.db.totals import StatusTotals, by_status
from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.drivers.values import Mode

LOG = log.getLogger(__name__)

_DERIVED = {
    VolumeStatus.RESERVED,
    VolumeStatus.ATTACHING,
    VolumeStatus.DETACHING,
    VolumeStatus.IN_USE,
}
#: The statuses that rows have.
_VOLUME_STATUSES = tuple(status for status in VolumeStatus if status not in _DERIVED)
_ATTACH_STATUSES = tuple(status for status in AttachStatus if status != "detached")

_REFUSED = (
    "Connections that the firewall of this node's portals has refused, as the last"
    " reconcile has read it."
)

Values = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, eq=False)
class NodeCollector(Collector):
    """Reads the node on each scrape. ``helper_blocked``: see drivers.helper_client."""

    node: Node
    backends: Backends
    database: Database
    jobs: JobRunner
    helper_blocked: Callable[[], bool]
    version: str

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that to register the collector reads nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the figures of this moment."""
        yield from self._node()
        yield from self._database()
        yield from self._jobs()
        for backend_gauge in _BACKEND_GAUGES:
            yield backend_gauge.family(self.backends.values())

    def _node(self) -> Iterator[Metric]:
        text = "The version of lunshare; the value is always 1."
        yield _gauge(
            "lunshare_build_info", text, ("version",), [((self.version,), 1.0)]
        )
        health = self.node.health()
        text = "1 if /readyz answers 200, else 0."
        yield _gauge("lunshare_ready", text, (), [((), health.ready)])
        kinds = {"failed": health.failed, "unknown": health.unknown}
        text = "What the last reconcile could not do, or found without a row."
        values = [((kind,), len(orphans)) for kind, orphans in kinds.items()]
        yield _gauge("lunshare_reconcile_problems", text, ("kind",), values)
        refused = CounterMetricFamily("lunshare_portal_refused_connections", _REFUSED)
        counts = [guard.refused for guard in health.portals.values()]
        refused.add_metric((), max(counts, default=0))  # each has that of the node
        yield refused
        text = "1 if the last call of the root helper got no answer in time, else 0."
        yield _gauge("lunshare_helper_blocked", text, (), [((), self.helper_blocked())])

    def _database(self) -> Iterator[Metric]:
        check = self.database.write_check
        text = "1 if the database can be written, as far as is known, else 0."
        yield _gauge("lunshare_database_writable", text, (), [((), not check.problem)])
        text = "Transactions that could not be written."
        failures = CounterMetricFamily("lunshare_database_write_failures", text)
        failures.add_metric((), check.failures)
        yield failures
        try:
            with self.database.reading() as connection:
                totals, leases = (
                    by_status(connection),
                    due_attachments.count_leases(connection),
                )
        except AgentError as error:
            LOG.error("[main] metrics: no totals by status: %s", error)
            return
        yield self._volumes(totals)
        yield _attachments(totals)
        text = "Leases of write access that have not ended."
        yield _gauge("lunshare_leases", text, (), [((), leases)])

    def _volumes(self, totals: StatusTotals) -> Metric:
        counts = {
            (name, status): 0 for name in self.backends for status in _VOLUME_STATUSES
        }
        counts |= _of_kind(totals, "volume")
        text = "Volumes by backend and own status: one with hosts is available here."
        labels = ("backend", "status")
        return _gauge("lunshare_volumes", text, labels, counts.items())

    def _jobs(self) -> Iterator[Metric]:
        counts = self.jobs.in_progress()
        text = "Steps of operations that run, or wait for a thread."
        values = [
            ((name, state), counts[name, started])
            for name in self.backends
            for state, started in (("running", True), ("waiting", False))
        ]
        yield _gauge("lunshare_jobs", text, ("backend", "state"), values)


def _attachments(totals: StatusTotals) -> Metric:
    counts: dict[tuple[str, str], int] = {
        (mode, status): 0 for mode in Mode for status in _ATTACH_STATUSES
    }
    for (mode, status), count in _of_kind(totals, "attachment").items():
        counts[mode or "unset", status] = count
    text = "Attachments by mode and status."
    return _gauge("lunshare_attachments", text, ("mode", "state"), counts.items())


def _of_kind(totals: StatusTotals, kind: str) -> dict[tuple[Any, Any], int]:
    return {(p, status): n for (k, p, status), n in totals.items() if k == kind}


@dataclass(frozen=True)
class BackendGauge:
    """A figure of each backend, from its last check; None leaves it out."""

    name: str
    text: str
    value: Callable[[NodeBackend], float | None]

    def family(self, backends: Iterable[NodeBackend]) -> Metric:
        """Return the figure of all of them."""
        figures = ((b.name, self.value(b)) for b in backends)
        values = [((name,), value) for name, value in figures if value is not None]
        return _gauge(self.name, self.text, ("backend",), values)


def _capacity(field: str) -> Callable[[NodeBackend], float | None]:
    def read(backend: NodeBackend) -> float | None:
        capacity = backend.capacity
        return None if capacity is None else float(getattr(capacity, field))

    return read


def _ratio(field: str) -> Callable[[NodeBackend], float | None]:
    def read(backend: NodeBackend) -> float | None:
        per_cent = getattr(backend.capacity, field, None)
        return None if per_cent is None else per_cent / 100

    return read


def _portals_open(backend: NodeBackend) -> float | None:
    guard = backend.drivers.target.portal_guard
    return None if guard is None else bool(guard.open)


_BACKEND_GAUGES = (
    BackendGauge(
        "lunshare_portals_open",
        "1 if everybody reaches the backend's portals, 0 if only its hosts do.",
        _portals_open,
    ),
    BackendGauge(
        "lunshare_backend_up",
        "1 if the last check of the backend found no problem, else 0.",
        lambda b: b.up,
    ),
    BackendGauge(
        "lunshare_backend_last_check_timestamp_seconds",
        "When the last check of the backend ended, 0 before the first.",
        lambda b: b.checked_at,
    ),
    BackendGauge(
        "lunshare_backend_requests",
        "Requests that work on the backend now.",
        lambda b: len(b.operations.holders),
    ),
    BackendGauge(
        "lunshare_backend_oldest_request_seconds",
        "How long the oldest of them has worked on the backend, 0 without one.",
        lambda b: b.operations.oldest_seconds,
    ),
    BackendGauge(
        "lunshare_pool_capacity_bytes", "Size of the pool.", _capacity("total")
    ),
    BackendGauge(
        "lunshare_pool_free_bytes",
        "Physical space of the pool that is free.",
        _capacity("free"),
    ),
    BackendGauge(
        "lunshare_pool_provisioned_bytes",
        "Sum of the sizes of the pool's volumes; more than its size if it is thin.",
        _capacity("provisioned"),
    ),
    BackendGauge(
        "lunshare_pool_closed",
        "1 if the pool accepts no new volumes and no growth, else 0.",
        lambda b: None if b.capacity is None else bool(b.capacity.closed),
    ),
    BackendGauge(
        "lunshare_pool_data_used_ratio",
        "How full the data of a thin pool are, 0 to 1.",
        _ratio("data_percent"),
    ),
    BackendGauge(
        "lunshare_pool_metadata_used_ratio",
        "How full the metadata of a thin pool are, 0 to 1.",
        _ratio("metadata_percent"),
    ),
    BackendGauge(
        "lunshare_wipes",
        "Deleted disks that are not wiped yet.",
        lambda b: len(b.wipes),
    ),
    BackendGauge(
        "lunshare_wipe_left_bytes",
        "Bytes of deleted disks that are not wiped yet.",
        lambda b: sum(wipe.left for wipe in b.wipes),
    ),
)


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for of_labels, value in values:
        family.add_metric(of_labels, float(value))
    return family
