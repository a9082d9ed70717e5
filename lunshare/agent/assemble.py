# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Create all parts of the daemon from one configuration; nothing else does."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from oslo_config import cfg

from lunshare.agent import listen_addresses, nova
from lunshare.agent.api.access import keystone
from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.api.wsgi import build_app
from lunshare.agent.backends import Backends, load
from lunshare.agent.db import schema_version
from lunshare.agent.db.sqlite.engine import PROBE_SECONDS, Database
from lunshare.agent.model.errors import DatabaseFailed
from lunshare.agent.model.quota_table import RESOURCES
from lunshare.agent.service.attachments import unanswered
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.legacy import LegacyActions
from lunshare.agent.service.attachments.service import Attachments
from lunshare.agent.service.attachments.unanswered import UnansweredRequests
from lunshare.agent.service.hosts import Hosts
from lunshare.agent.service.instance_gate import InstanceGate
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.service.jobs.purger import Purger
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.service.log_levels import LogLevels
from lunshare.agent.service.messages import Messages
from lunshare.agent.service.metrics.collected import NodeCollector
from lunshare.agent.service.metrics.helper_usage import HelperUsage
from lunshare.agent.service.metrics.page import Metrics
from lunshare.agent.service.metrics.recorded import Recorded
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans.orphans import Orphans
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.reconcile import Reconciler
from lunshare.agent.service.recovery import Recovery
from lunshare.agent.service.scheduling import weighers
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.services import Services
from lunshare.agent.service.sharing import SharingRules
from lunshare.agent.service.snapshots.managed import (
    ManagedSnapshots,
)
from lunshare.agent.service.snapshots.snapshot_status import SnapshotResetter
from lunshare.agent.service.snapshots.snapshots import Snapshots
from lunshare.agent.service.transfers import Transfers
from lunshare.agent.service.types.qos import Qos
from lunshare.agent.service.types.type_access import TypeAccess
from lunshare.agent.service.types.type_encryption import TypeEncryption
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes.create import VolumeDisks
from lunshare.agent.service.volumes.extend import VolumeExtender
from lunshare.agent.service.volumes.manage import ManagedDisks
from lunshare.agent.service.volumes.metadata import VolumeMetadata
from lunshare.agent.service.volumes.migrate import VolumeMigrator
from lunshare.agent.service.volumes.reset_status import StatusResetter
from lunshare.agent.service.volumes.revert import VolumeReverter
from lunshare.agent.service.volumes.service import Volumes
from lunshare.agent.threads.limit import share_of
from lunshare.agent.timers import Timer
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.base import Root
from lunshare.drivers.helper_client import Helper

# A transaction has a few statements, and Python runs one thread at a time. More
# connections would not be faster, and each has its own cache.
_CONNECTIONS = 8
_PURGE_SECONDS = 5.0

#: Seconds for idle threads to end, even if requests used up all the time to stop.
IDLE_SECONDS = 0.5


@dataclass(frozen=True)
class Assembly:
    """The daemon's parts, ready to start."""

    app: Callable[..., Any]
    services: Services
    reconcile: Reconciler
    backends: Backends
    loops: tuple[Timer | Wiper, ...]
    database: Database
    jobs: JobRunner
    timer: Timer

    def start(self, reconcile_again: bool) -> None:
        """Start the timers. A backend that comes up is reconciled at once."""
        for loop in self.loops:
            loop.start()
        for backend in self.backends.values():
            backend.came_up = self.timer.wake
            backend.follow_storage()
        if reconcile_again:
            self.timer.wake()

    def close(self, seconds: float = 60.0, answered: bool = True) -> bool:
        """Stop timers, let work in progress end, close the database.

        ``answered``: whether every request was, so that no client repeats an attach.
        Return whether all of it ended within ``seconds``, or within
        IDLE_SECONDS if that is longer. If not, the caller ends the process.
        """
        until = time.monotonic() + max(seconds, IDLE_SECONDS)
        for loop in self.loops:
            loop.stop(0)
        for loop in self.loops:
            loop.stop(max(0.0, until - time.monotonic()))
        ended = self.jobs.stop(until) and not any(loop.alive for loop in self.loops)
        return ended and self._close_database(until, answered)

    def _close_database(self, until: float, answered: bool) -> bool:
        """Return whether it was closed in time: its disk may hang."""
        closing = threading.Thread(
            target=self._finish_database,
            args=(answered,),
            name="database",
            daemon=True,
        )
        closing.start()
        closing.join(max(0.0, until - time.monotonic()))
        return not closing.is_alive()

    def _finish_database(self, answered: bool) -> None:
        if answered:
            self._mark_answers()
        self.database.close()

    def _mark_answers(self) -> None:
        """Note that every answer is sent, so no attach is reused after a restart."""
        with contextlib.suppress(DatabaseFailed):
            for _ in range(2):  # a call marks what was sent before the last call
                self.services.attachments.unanswered.mark_answered()


def assemble(conf: cfg.ConfigOpts, root: Root | None = None) -> Assembly:
    """Open and upgrade the database, and connect all parts.

    ``root``: the client of the root helper, by default of the configured socket.
    No request is sent to it before a driver needs it.

    :raises StartupError: names what is wrong, and what to do.
    """
    root = root or Helper(conf.helper.socket)
    backends = load(conf, root)
    database = Database(database_url(conf), connections=_CONNECTIONS)
    schema_version.prepare(database)
    locks = VolumeLocks(conf.volume_lock_timeout, share_of(conf.osapi_threads))
    access = Access(database, backends)
    node = Node(database, backends, conf.host, conf.storage_availability_zone)
    types = Types(database, conf.default_volume_type)
    quotas = _quotas(conf, database)
    recorded = Recorded()
    wiper = Wiper(backends, recorded.task_failed)
    messages = Messages(database, conf.message_ttl)
    jobs = JobRunner(conf.create_wait, messages.record_fault, recorded.job)
    scheduler = Scheduler(node, types, messages, _multipliers(conf))
    pools = Pools(node, backends, conf.storage_availability_zone)
    unanswered_requests = UnansweredRequests(database)
    purger = Purger(database, conf.database.deleted_rows_ttl)
    volume_disks = VolumeDisks(database, backends, locks, node=node, wiper=wiper)
    its_snapshots = Snapshots(database, backends, locks, jobs, quotas=quotas, node=node)
    rules = AccessRules(conf, share_of(conf.osapi_threads))
    sharing = SharingRules(rules.allows)
    gate = _instance_gate(conf)
    attachments = Attachments(
        database,
        access,
        locks,
        unanswered_requests,
        sharing=sharing,
        gate=gate,
        widen=conf.mixed_modes_per_host == "widen",
    )
    services = Services(
        volumes=Volumes(
            database,
            volume_disks=volume_disks,
            types=types,
            node=node,
            jobs=jobs,
            pools=pools,
            scheduler=scheduler,
            quotas=quotas,
            sharing=sharing,
            messages=messages,
        ),
        quotas=quotas,
        attachments=attachments,
        legacy=LegacyActions(database, access, locks, rows=attachments, gate=gate),
        metadata=VolumeMetadata(database),
        transfers=Transfers(database, quotas),
        recorded=recorded,
        metrics=Metrics(
            recorded,
            NodeCollector(
                node,
                backends,
                database,
                jobs,
                lambda: bool(getattr(root, "blocked", False)),
                version("lunshare"),
            ),
            HelperUsage(Helper(conf.helper.socket, idle=1)),
        ),
        snapshot_resetter=SnapshotResetter(database, backends),
        types=types,
        type_access=TypeAccess(database),
        type_encryption=TypeEncryption(database),
        qos=Qos(database),
        log_levels=LogLevels(),
        node=node,
        snapshots=its_snapshots,
        extender=VolumeExtender(
            database,
            backends,
            locks,
            access=access,
            node=node,
            jobs=jobs,
            pools=pools,
            quotas=quotas,
        ),
        reverter=VolumeReverter(database, backends, locks, jobs),
        wiper=wiper,
        managed_disks=ManagedDisks(
            database,
            backends,
            locks,
            volume_disks=volume_disks,
            types=types,
            node=node,
            jobs=jobs,
            pools=pools,
            quotas=quotas,
        ),
        managed_snapshots=ManagedSnapshots(
            database,
            backends,
            locks,
            jobs,
            its_snapshots=its_snapshots,
            pools=pools,
            quotas=quotas,
            node=node,
        ),
        status_resetter=StatusResetter(
            database,
            backends,
            locks,
            node=node,
            access=access,
            rows=attachments,
            gate=gate,
        ),
        migrator=VolumeMigrator(
            database,
            backends,
            locks,
            types=types,
            node=node,
            jobs=jobs,
            pools=pools,
            scheduler=scheduler,
            wiper=wiper,
            quotas=quotas,
            sharing=sharing,
        ),
        scheduler=scheduler,
        messages=messages,
        hosts=Hosts(database, backends),
        orphans=Orphans(
            database,
            backends,
            locks,
            types=types,
            node=node,
            pools=pools,
            wiper=wiper,
        ),
    )
    reconcile = Reconciler(
        database,
        backends,
        locks,
        access=access,
        node=node,
        measured=recorded.reconciled,
        recovery=Recovery(
            database,
            backends,
            jobs,
            volume_disks=volume_disks,
            snapshots=services.snapshots,
            managed_snapshots=services.managed_snapshots,
            extender=services.extender,
            reverter=services.reverter,
            managed_disks=services.managed_disks,
            migrator=services.migrator,
        ),
    )
    timers: dict[str, tuple[float, Callable[[], object]]] = {
        "reconcile": (conf.reconcile_interval, reconcile.run),
        "database": (PROBE_SECONDS, database.probe),
        "stats": (conf.backend_stats_polling_interval, node.refresh),
        "answers": (unanswered.ANSWER_SECONDS, unanswered_requests.mark_answered),
        "purge": (_PURGE_SECONDS, purger.purge),
    }
    recorded.prepare(list(backends), [*timers, "wipe"])
    for backend in backends.values():
        backend.measured = partial(recorded.access, backend.name)
    running = [
        Timer(name, seconds, work, recorded.task_failed)
        for name, (seconds, work) in timers.items()
    ]
    timer = running[0]
    loops: tuple[Timer | Wiper, ...] = (*running, wiper)
    app = build_app(services, _api_settings(conf), rules)
    if conf.auth_strategy == "keystone":
        app = keystone.wrap(app, conf, share_of(conf.osapi_threads))
    return Assembly(app, services, reconcile, backends, loops, database, jobs, timer)


def database_url(conf: cfg.ConfigOpts) -> str:
    """Return the SQLAlchemy URL of the database: configured, or in state_path."""
    default = f"sqlite:///{os.path.join(conf.state_path, 'lunshare.sqlite')}"
    return str(conf.database.connection or default)


def _quotas(conf: cfg.ConfigOpts, database: Database) -> Quotas:
    defaults = {each.name: conf[each.option] for each in RESOURCES}
    return Quotas(database, defaults, not conf.no_snapshot_gb_quota)


def _instance_gate(conf: cfg.ConfigOpts) -> InstanceGate:
    """Return the gate, with the roles of a service token."""
    roles = ["service"]
    if conf.auth_strategy == "keystone":
        keystone.register(conf)
        roles = conf.keystone_authtoken.service_token_roles
    return InstanceGate(nova.client(conf, share_of(conf.osapi_threads)), roles)


def _multipliers(conf: cfg.ConfigOpts) -> dict[str, float]:
    """Return the multiplier of each weigher, from the option with its name."""
    return {
        name: conf.scheduler[f"{name}_weight_multiplier"] for name in weighers.WEIGHERS
    }


def _auth_url(conf: cfg.ConfigOpts) -> str:
    """Return where clients get tokens, for the header of a 401."""
    if conf.auth_strategy != "keystone":
        return ""
    keystone.register(conf)
    return str(conf.keystone_authtoken.www_authenticate_uri or "")


def _api_settings(conf: cfg.ConfigOpts) -> ApiSettings:
    return ApiSettings(
        auth_strategy=conf.auth_strategy,
        public_endpoint=conf.public_endpoint,
        max_limit=conf.osapi_max_limit,
        max_body=conf.osapi_max_request_body_size,
        users_file=conf.http_basic_auth_user_file,
        password_checks=share_of(conf.osapi_threads),
        addresses=tuple(listen_addresses.configured(conf)),
        allowed_hosts=tuple(conf.allowed_hosts),
        auth_url=_auth_url(conf),
    )
