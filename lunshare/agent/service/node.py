# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node as schedulers, operators and load balancers see it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

from lunshare.agent.backends import Backends, NodeBackend
from lunshare.agent.db import services, totals, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import Health, Pool, RequestContext, ServiceState
from lunshare.agent.threads.limit import HANGING_SECONDS
from lunshare.drivers import backend_stats
from lunshare.drivers.values import Capacity

_FIRST = 20.0  # seconds; the daemon gives its own, start_wait
_VOLUME = "cinder-volume"
_SCHEDULER = "cinder-scheduler"
_UNCHECKED = Capacity(total=0, free=0, provisioned=0, thin=False)


class ProvisionedCounts:
    """How many volumes and GiB are provisioned on each backend.

    They are counted in SQL once a period and updated in between, so that placing a
    volume costs the same however many volumes the node has.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[int, int]] = {}

    def read(self, backend: str) -> tuple[int, int]:
        """Return count and GiB."""
        return self._sums.get(backend, (0, 0))

    def put(self, backend: str, count: int, gib: int) -> None:
        """Set what SQL counted."""
        with self._lock:
            self._sums[backend] = (count, gib)

    def add(self, backend: str, count: int, gib: int) -> None:
        """Add what has changed since."""
        with self._lock:
            old_count, old_gib = self.read(backend)
            self._sums[backend] = (old_count + count, old_gib + gib)


class Node:
    """This node's services, pools and health."""

    def __init__(self, db: Database, backends: Backends, host: str, zone: str) -> None:
        self._db, self._backends = db, backends
        self._host, self._zone = host, zone
        self._provisioned = ProvisionedCounts()
        self._reconciled = False
        self._failed: tuple[str, ...] = ()
        self._unknown: tuple[str, ...] = ()
        self._not_enabled: tuple[str, ...] = ()

    def services(
        self, ctx: RequestContext, host: str | None = None, binary: str | None = None
    ) -> list[ServiceState]:
        """Return the scheduler and one line for each backend.

        ``host`` selects the lines of that host, and those of its backends.
        """
        with self._db.reading() as connection:
            disabled = services.disabled(connection)
            frozen = services.frozen_backends(connection)
        lines = [self._scheduler_line(disabled)]
        lines += [
            self._service_line(b, disabled, frozen) for b in self._backends.values()
        ]
        return [
            line
            for line in lines
            if (host is None or f"{line.host}@".startswith(f"{host}@"))
            and binary in (None, line.binary)
        ]

    def set_service(
        self,
        ctx: RequestContext,
        host: str,
        binary: str,
        enabled: bool,
        reason: str | None,
    ) -> ServiceState:
        """Enable or disable a service; a disabled backend gets no new volumes.

        :raises NotFound: the service does not exist.
        """
        self._require_service(ctx, host, binary)
        with self._db.writing() as connection:
            backend = host.partition("@")[2]
            frozen = binary == _VOLUME and services.is_frozen(connection, backend)
            services.put(
                connection, host, binary, enabled=enabled, reason=reason, frozen=frozen
            )
        return self._require_service(ctx, host, binary)

    def set_frozen(self, ctx: RequestContext, host: str, frozen: bool) -> None:
        """Freeze a backend, or thaw it.

        A frozen backend gets no new volumes, and its volumes and snapshots can not
        be deleted, and no snapshot created. Hosts continue to use it.

        :raises Invalid: the backend does not exist, or is frozen (thawed) already.
        """
        try:
            self._require_service(ctx, host, _VOLUME)
        except NotFound as error:
            raise Invalid(f"host: {error.message}") from error
        with self._db.writing() as connection:
            if services.is_frozen(connection, host.partition("@")[2]) is frozen:
                state = "frozen already" if frozen else "not frozen"
                raise Invalid(f"host: backend {host} is {state}.")
            reason = "frozen" if frozen else None
            services.put(
                connection,
                host,
                _VOLUME,
                enabled=not frozen,
                reason=reason,
                frozen=frozen,
            )

    def totals(self, ctx: RequestContext, host: str) -> list[totals.BackendTotals]:
        """Return what each project has on a backend, or on none for the node's name.

        :raises NotFound: this node has no such host.
        """
        if host not in {line.host for line in self.services(ctx)}:
            raise NotFound("host", host)
        with self._db.reading() as connection:
            return totals.by_project(connection, host.partition("@")[2])

    def check_not_frozen(self, connection: Connection, backend: str) -> None:
        """Check in the transaction of a change that its backend is not frozen.

        :raises Invalid: it is.
        """
        if services.is_frozen(connection, backend):
            host = f"{self._host}@{backend}"
            raise Invalid(
                f"backend {host} is frozen: nothing on it can be deleted, and no"
                " snapshot created, until an administrator thaws it"
            )

    @property
    def zone(self) -> str:
        """The availability zone of the node."""
        return self._zone

    def pools(self, ctx: RequestContext) -> list[Pool]:
        """Return the pools that a scheduler may choose from."""
        return self.current_pools()

    def current_pools(self) -> list[Pool]:
        """Return the pools for the services of this process; see ``pools``."""
        with self._db.reading() as connection:
            disabled = services.disabled(connection)
        return [
            Pool(
                name=f"{self._host}@{b.name}#{_pool_name(b)}",
                backend=b.name,
                capabilities=_capabilities(b, *self._provisioned.read(b.name)),
                problem=b.problem or "",
                closed=b.capacity.closed if b.capacity else "",
                enabled=(b.name, _VOLUME) not in disabled,
                zone=self._zone,
                sector=(b.capacity or _UNCHECKED).sector,
            )
            for b in self._backends.values()
        ]

    def pool(self, ctx: RequestContext, host: str) -> Pool:
        """Return the pool of host@backend, or of host@backend#pool.

        :raises NotFound: this node has no such pool.
        """
        for pool in self.current_pools():
            if host in (pool.name, pool.name.partition("#")[0]):
                return pool
        raise NotFound("service", host)

    def refresh(self, wait: float | None = None) -> None:
        """Check every backend again, all of them at once.

        A check that does not end within ``wait`` seconds continues, and the other
        backends do not wait for it. By default that is HANGING_SECONDS. Before the
        first reconcile it is longer, since a backend may have to activate all its
        disks after a boot.
        """
        checks = [backend.start_check() for backend in self._backends.values()]
        self._count_volumes()
        usual = HANGING_SECONDS if self._reconciled else _FIRST
        end = time.monotonic() + (usual if wait is None else wait)
        for check in checks:
            check.wait(max(0.0, end - time.monotonic()))

    def _count_volumes(self) -> None:
        """Count in SQL what volumes there are on each backend."""
        with self._db.reading() as connection:
            used = volumes.backends(connection)
            for name in self._backends:
                self._provisioned.put(name, *volumes.provisioned(connection, name))
        self._not_enabled = tuple(sorted(used - set(self._backends)))

    def count_volume(self, backend: str, count: int, gib: int) -> None:
        """Count a volume added (1, its size) or deleted (-1, minus its size)."""
        self._provisioned.add(backend, count, gib)

    def host_of(self, backend: str) -> str:
        """Return the host@backend#pool of a volume."""
        node_backend = self._backends.find(backend)
        pool = _pool_name(node_backend) if node_backend else backend
        return f"{self._host}@{backend}#{pool}"

    def health(self) -> Health:
        """Return whether the node can work, and what is wrong."""
        problems = [
            f"backend {b.name} is down: {b.problem}"
            for b in self._backends.values()
            if not b.up
        ]
        problems += [
            f"backend {name} has volumes and is not among enabled_backends"
            for name in self._not_enabled
        ]
        if self._db.write_check.problem is not None:
            problems.append(self._db.write_check.problem)
        if not self._reconciled:
            problems.append("the live targets are not reconciled with the database yet")
        failed = (*self._failed, *self._closed_pools())
        portals = {
            b.name: guard
            for b in self._backends.values()
            if (guard := b.drivers.target.portal_guard) is not None
        }
        return Health(not problems, tuple(problems), failed, self._unknown, portals)

    def _closed_pools(self) -> list[str]:
        """Return the closed pools, with the reason and when it was found."""
        return [
            f"pool of backend {b.name} is closed: {b.capacity.closed}; seen"
            f" {datetime.fromtimestamp(b.checked_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
            for b in self._backends.values()
            if b.up and b.capacity and b.capacity.closed
        ]

    def note_reconciled(
        self, failed: tuple[str, ...], unknown: tuple[str, ...]
    ) -> None:
        """Remember what failed in the last reconcile, and what has no row."""
        self._reconciled, self._failed, self._unknown = True, failed, unknown

    def _require_service(
        self, ctx: RequestContext, host: str, binary: str
    ) -> ServiceState:
        for line in self.services(ctx, host, binary):
            if line.host == host:
                return line
        raise NotFound("service", f"{binary} on {host}")

    def _service_host(self, backend: NodeBackend) -> str:
        return f"{self._host}@{backend.name}"

    def _scheduler_line(
        self, disabled: dict[tuple[str, str], str | None]
    ) -> ServiceState:
        key = ("", _SCHEDULER)
        moment = datetime.now(UTC).replace(tzinfo=None)
        return ServiceState(
            _SCHEDULER,
            self._host,
            self._zone,
            enabled=key not in disabled,
            up=True,
            updated_at=moment,
            disabled_reason=disabled.get(key),
        )

    def _service_line(
        self,
        backend: NodeBackend,
        disabled: dict[tuple[str, str], str | None],
        frozen: set[str],
    ) -> ServiceState:
        key = (backend.name, _VOLUME)
        moment = datetime.fromtimestamp(backend.checked_at, UTC).replace(tzinfo=None)
        return ServiceState(
            _VOLUME,
            self._service_host(backend),
            self._zone,
            enabled=key not in disabled,
            up=backend.up,
            updated_at=moment,
            disabled_reason=disabled.get(key),
            frozen=backend.name in frozen,
        )


def _pool_name(backend: NodeBackend) -> str:
    """Return the part after the # in host@backend#pool."""
    return str(backend.options.get("volume_backend_name") or backend.name)


def _capabilities(
    backend: NodeBackend, volumes_here: int, provisioned_gib: int
) -> dict[str, Any]:
    """Return the stats of one pool, with the keys of Cinder's drivers; sizes are GiB.

    All of it is from the backend's last check. Nothing here reads storage.
    """
    checked, drivers = backend.capacity or _UNCHECKED, backend.drivers
    name = _pool_name(backend)
    of_pool = backend_stats.of_pool(drivers, checked, backend.wipes)
    provisioned = max(of_pool["provisioned_capacity_gb"], float(provisioned_gib))
    return {
        **of_pool,
        **backend_stats.OF_VENDOR,
        "volume_backend_name": name,
        "pool_name": name,
        "provisioned_capacity_gb": provisioned,
        "allocated_capacity_gb": provisioned_gib,
        "reserved_percentage": backend.options["reserved_percentage"],
        "max_over_subscription_ratio": backend.options["max_over_subscription_ratio"],
        "total_volumes": volumes_here,
        "location_info": f"lunshare:{backend.name}",
        "backend_state": "up" if backend.up else "down",
        "state_reason": backend.problem or checked.closed or None,
        "timestamp": datetime.fromtimestamp(backend.checked_at, UTC)
        .replace(tzinfo=None)
        .isoformat(),
    }
