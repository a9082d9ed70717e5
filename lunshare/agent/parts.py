# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of the daemon: its parts, and which of them each one needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from oslo_config import cfg

from lunshare.agent import listen_addresses, nova
from lunshare.agent.api.access import keystone
from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.api.wsgi import build_app
from lunshare.agent.backends import load
from lunshare.agent.db import schema_version
from lunshare.agent.db.sqlite.engine import PROBE_SECONDS, Database
from lunshare.agent.model.quota_table import RESOURCES
from lunshare.agent.service.attachments import leases, unanswered
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.batches import Batches
from lunshare.agent.service.attachments.fencing import Fences
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.leases import Leases
from lunshare.agent.service.attachments.legacy import LegacyActions
from lunshare.agent.service.attachments.mode_change import ModeChanges
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
from lunshare.agent.service.metrics.recorded import Metrics, Recorded
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans.orphans import Orphans
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.reconcile import Reconciler
from lunshare.agent.service.recovery import Recovery
from lunshare.agent.service.reservation_keys import ReservationKeys
from lunshare.agent.service.scheduling import weighers
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.services import Services
from lunshare.agent.service.sharing import SharingRules
from lunshare.agent.service.snapshots.managed import ManagedSnapshots
from lunshare.agent.service.snapshots.snapshot_status import SnapshotResetter
from lunshare.agent.service.snapshots.snapshots import Snapshots
from lunshare.agent.service.transfers import Transfers
from lunshare.agent.service.types.qos import Qos
from lunshare.agent.service.types.type_access import TypeAccess
from lunshare.agent.service.types.type_encryption import TypeEncryption
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.verifier import Verifier
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


class Parts(Services):
    """The parts of the daemon, from the ground up.

    :raises StartupError: the options of a part are wrong; it names them.
    """

    def __init__(self, conf: cfg.ConfigOpts, root: Root) -> None:
        """Create all of them. ``root``: the client of the root helper."""
        self._conf, self._root = conf, root
        self._threads = share_of(conf.osapi_threads)
        self._create_ground()
        self._create_common()
        self._create_placement()
        self._create_access()
        self._create_attachments()
        self._create_disks()
        self._create_changes()
        self._create_managed()
        self._create_tables()
        self.reconcile = self._reconciler()
        self.timers = self._timers()
        self.metrics = self._metrics()
        self.app = self._app()

    def _create_ground(self) -> None:
        """Storage, the database, and the locks: what every service needs."""
        self.recorded = Recorded()
        self.backends = load(self._conf, self._root)
        for backend in self.backends.values():
            backend.measured = partial(self.recorded.access, backend.name)
        self.database = Database(database_url(self._conf), connections=_CONNECTIONS)
        schema_version.prepare(self.database)
        self.locks = VolumeLocks(self._conf.volume_lock_timeout, self._threads)
        self._ground = self.database, self.backends, self.locks

    def _create_common(self) -> None:
        """What many services use: messages, jobs, quotas."""
        conf = self._conf
        self.messages = Messages(self.database, conf.message_ttl)
        self.jobs = JobRunner(
            conf.create_wait, self.messages.record_fault, self.recorded.job
        )
        defaults = {resource.name: conf[resource.option] for resource in RESOURCES}
        self.quotas = Quotas(self.database, defaults, not conf.no_snapshot_gb_quota)

    def _create_placement(self) -> None:
        """The node, its types and pools, and the choice of a pool."""
        conf, zone = self._conf, self._conf.storage_availability_zone
        self.node = Node(self.database, self.backends, conf.host, zone)
        self.types = Types(self.database, conf.default_volume_type)
        self.pools = Pools(self.node, self.backends, zone)
        multipliers = {
            name: conf.scheduler[f"{name}_weight_multiplier"]
            for name in weighers.WEIGHERS
        }
        self.scheduler = Scheduler(self.node, self.types, self.messages, multipliers)

    def _create_access(self) -> None:
        """Who may do what: policy, sharing, and the gate of instances."""
        self.rules = AccessRules(self._conf, self._threads)
        self.sharing = SharingRules(self.rules.allows)
        roles = ["service"]
        if self._conf.auth_strategy == "keystone":
            keystone.register(self._conf)
            roles = self._conf.keystone_authtoken.service_token_roles
        self.gate = InstanceGate(nova.client(self._conf, self._threads), roles)

    def _create_attachments(self) -> None:
        self.access = Access(self.database, self.backends)
        self.unanswered = UnansweredRequests(self.database)
        shared = self.database, self.access, self.locks
        keys = ReservationKeys(self.database, self.backends)
        self.attachments = Attachments(
            *shared,
            self.unanswered,
            sharing=self.sharing,
            gate=self.gate,
            keys=keys,
            widen=self._conf.mixed_modes_per_host == "widen",
        )
        single, gate = self.attachments, self.gate
        self.batches = Batches(*shared, single=single, gate=gate, keys=keys)
        self.legacy = LegacyActions(*shared, rows=single, gate=gate, keys=keys)
        self.mode_changes = ModeChanges(*shared, jobs=self.jobs)
        self.handovers = Handovers(*shared, changes=self.mode_changes, gate=gate)
        self.leases = Leases(
            *shared,
            changes=self.mode_changes,
            handovers=self.handovers,
            jobs=self.jobs,
            counted=self.recorded.lease_ended,
        )
        self.fences = Fences(
            *shared, backends=self.backends, jobs=self.jobs, patient=self._threads
        )
        self.verifier = Verifier(
            *self._ground,
            access=self.access,
            opening=self.fences.opening,
            repairs=self._conf.drift == "repair",
            counted=self.recorded.drifted,
        )

    def _create_disks(self) -> None:
        """Volumes and snapshots: created, listed, deleted."""
        self.wiper = Wiper(self.backends, self.recorded.task_failed)
        self.volume_disks = VolumeDisks(*self._ground, node=self.node, wiper=self.wiper)
        self.volumes = Volumes(
            self.database,
            volume_disks=self.volume_disks,
            types=self.types,
            node=self.node,
            jobs=self.jobs,
            pools=self.pools,
            scheduler=self.scheduler,
            quotas=self.quotas,
            sharing=self.sharing,
            messages=self.messages,
        )
        self.snapshots = Snapshots(
            *self._ground, self.jobs, quotas=self.quotas, node=self.node
        )

    def _create_changes(self) -> None:
        """What changes a volume: extend, revert, migrate, reset its status."""
        self.extender = VolumeExtender(
            *self._ground,
            access=self.access,
            node=self.node,
            jobs=self.jobs,
            pools=self.pools,
            quotas=self.quotas,
        )
        self.reverter = VolumeReverter(*self._ground, self.jobs)
        self.migrator = VolumeMigrator(
            *self._ground,
            types=self.types,
            node=self.node,
            jobs=self.jobs,
            pools=self.pools,
            scheduler=self.scheduler,
            wiper=self.wiper,
            quotas=self.quotas,
            sharing=self.sharing,
        )
        self.status_resetter = StatusResetter(
            *self._ground,
            node=self.node,
            access=self.access,
            rows=self.attachments,
            gate=self.gate,
        )

    def _create_managed(self) -> None:
        """Disks and snapshots that others have created."""
        self.managed_disks = ManagedDisks(
            *self._ground,
            volume_disks=self.volume_disks,
            types=self.types,
            node=self.node,
            jobs=self.jobs,
            pools=self.pools,
            quotas=self.quotas,
        )
        self.managed_snapshots = ManagedSnapshots(
            *self._ground,
            self.jobs,
            its_snapshots=self.snapshots,
            pools=self.pools,
            quotas=self.quotas,
            node=self.node,
        )
        self.orphans = Orphans(
            *self._ground,
            types=self.types,
            node=self.node,
            pools=self.pools,
            wiper=self.wiper,
        )

    def _create_tables(self) -> None:
        """What only reads and writes rows."""
        self.type_access = TypeAccess(self.database)
        self.type_encryption = TypeEncryption(self.database)
        self.qos = Qos(self.database)
        self.metadata = VolumeMetadata(self.database)
        self.transfers = Transfers(self.database, self.quotas)
        self.snapshot_resetter = SnapshotResetter(self.database, self.backends)
        self.hosts = Hosts(self.database, self.backends, self.verifier.verified_at)
        self.log_levels = LogLevels()

    def _reconciler(self) -> Reconciler:
        """Return what applies the database to the node, and continues operations."""
        recovery = Recovery(
            self.database,
            self.backends,
            self.jobs,
            volume_disks=self.volume_disks,
            snapshots=self.snapshots,
            managed_snapshots=self.managed_snapshots,
            extender=self.extender,
            reverter=self.reverter,
            managed_disks=self.managed_disks,
            migrator=self.migrator,
        )
        return Reconciler(
            *self._ground,
            access=self.access,
            verifier=self.verifier,
            handovers=self.handovers,
            fences=self.fences,
            leases=self.leases,
            node=self.node,
            measured=self.recorded.reconciled,
            recovery=recovery,
        )

    def _timers(self) -> dict[str, Timer]:
        """Return what runs again and again, by name."""
        conf = self._conf
        purger = Purger(self.database, conf.database.deleted_rows_ttl)
        plan: dict[str, tuple[float, Callable[[], object]]] = {
            "reconcile": (conf.reconcile_interval, self.reconcile.run),
            "database": (PROBE_SECONDS, self.database.probe),
            "stats": (conf.backend_stats_polling_interval, self.node.refresh),
            "answers": (unanswered.ANSWER_SECONDS, self.unanswered.mark_answered),
            "purge": (_PURGE_SECONDS, purger.purge),
            "leases": (leases.CHECK_SECONDS, self.leases.end_due),
        }
        self.recorded.prepare(list(self.backends), [*plan, "wipe"])
        return {
            name: Timer(name, seconds, work, self.recorded.task_failed)
            for name, (seconds, work) in plan.items()
        }

    def _metrics(self) -> Metrics:
        """Return the page of metrics."""
        collector = NodeCollector(
            self.node,
            self.backends,
            self.database,
            self.jobs,
            lambda: bool(getattr(self._root, "blocked", False)),
            version("lunshare"),
        )
        usage = HelperUsage(Helper(self._conf.helper.socket, idle=1))
        return Metrics(self.recorded, collector, usage)

    def _app(self) -> Callable[..., Any]:
        """Return the application of WSGI."""
        app = build_app(self, _api_settings(self._conf), self.rules)
        if self._conf.auth_strategy == "keystone":
            return keystone.wrap(app, self._conf, self._threads)
        return app


def database_url(conf: cfg.ConfigOpts) -> str:
    """Return the SQLAlchemy URL of the database: configured, or in state_path."""
    default = f"sqlite:///{os.path.join(conf.state_path, 'lunshare.sqlite')}"
    return str(conf.database.connection or default)


def _auth_url(conf: cfg.ConfigOpts) -> str:
    """Return where clients get tokens, for the header of a 401."""
    if conf.auth_strategy != "keystone":
        return ""
    keystone.register(conf)
    return str(conf.keystone_authtoken.www_authenticate_uri or "")


def _password_checks(threads: int) -> int:
    """Return how many passwords may be computed at once.

    One processor is left to the rest of the daemon: 10 computations on 2 processors
    delayed a client that is known for 3 s, and one delays it for 0.04 s.
    """
    return max(1, min(share_of(threads), (os.cpu_count() or 1) - 1))


def _api_settings(conf: cfg.ConfigOpts) -> ApiSettings:
    return ApiSettings(
        auth_strategy=conf.auth_strategy,
        public_endpoint=conf.public_endpoint,
        max_limit=conf.osapi_max_limit,
        max_body=conf.osapi_max_request_body_size,
        users_file=conf.http_basic_auth_user_file,
        password_checks=_password_checks(conf.osapi_threads),
        addresses=tuple(listen_addresses.configured(conf)),
        allowed_hosts=tuple(conf.allowed_hosts),
        auth_url=_auth_url(conf),
    )
