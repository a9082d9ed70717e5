# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Build the whole daemon from one configuration; nothing else constructs its parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

from lunshare.agent import reporter
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.api.wsgi import build_app
from lunshare.agent.backends import MOMENT, Backends, load, share_of
from lunshare.agent.db import migrations
from lunshare.agent.db.engine import PROBE_SECONDS, Database
from lunshare.agent.reporter import Reporter
from lunshare.agent.service.attachments import unanswered
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.service import Attachments
from lunshare.agent.service.attachments.unanswered import Answers
from lunshare.agent.service.hosts import Hosts
from lunshare.agent.service.job_runner import Jobs
from lunshare.agent.service.messages import Messages
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans import Orphans
from lunshare.agent.service.purger import Purging
from lunshare.agent.service.reconcile import Reconcile
from lunshare.agent.service.recovery import Resume
from lunshare.agent.service.scheduling import weighers
from lunshare.agent.service.scheduling.pools import Places
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.services import Services
from lunshare.agent.service.snapshots import Snapshots
from lunshare.agent.service.types import Types
from lunshare.agent.service.volumes.create import Making
from lunshare.agent.service.volumes.extend import Extending
from lunshare.agent.service.volumes.manage import Handing
from lunshare.agent.service.volumes.migrate import Moving
from lunshare.agent.service.volumes.reset_status import Resetting
from lunshare.agent.service.volumes.revert import Reverting
from lunshare.agent.service.volumes.service import Volumes
from lunshare.agent.service.wiper import Wiping
from lunshare.agent.timers import Loop
from lunshare.agent.volume_locks import Locks
from lunshare.drivers.base import Root
from lunshare.drivers.helper_client import Helper

# No transaction outlives a few statements, and Python runs one thread at a
# time: more of them would be no faster, and each has a cache of its own.
_CONNECTIONS = 8
_PURGE_SECONDS = 5.0


@dataclass(frozen=True)
class Assembly:
    """The daemon's parts, ready to start."""

    app: Callable[..., Any]
    services: Services
    reconcile: Reconcile
    backends: Backends
    loops: tuple[Loop | Wiping | Reporter, ...]
    database: Database
    jobs: Jobs
    timer: Loop

    def start(self, reconcile_again: bool) -> None:
        """Start timers. A backend that comes up is reconciled at once."""
        for loop in self.loops:
            loop.start()
        for backend in self.backends.values():
            backend.came_up = self.timer.wake
        if reconcile_again:
            self.timer.wake()

    def close(self, seconds: float = 60.0) -> bool:
        """Stop timers, let running work end, close the database.

        Whether all of it ended within so many seconds; else the caller ends the
        process, and nothing is pulled away from under what is still under way.
        """
        until = time.monotonic() + seconds
        for loop in self.loops:
            if not isinstance(loop, Reporter):
                loop.stop(0)
        for loop in self.loops:
            loop.stop(max(0.1, until - time.monotonic()))
        ended = self.jobs.end(until) and not any(loop.alive for loop in self.loops)
        if ended:
            self.database.close()
        return ended


def assemble(conf: cfg.ConfigOpts, root: Root | None = None) -> Assembly:
    """Open the database, bring it up to date, and put the parts together.

    ``root`` is the door to the root helper; by default the one of the
    configuration, to which nothing is said before a driver needs it.

    :raises StartupError: what is wrong and how to mend it.
    """
    root = root or Helper(conf.helper.socket)
    backends = load(conf, root)
    database = Database(database_url(conf), connections=_CONNECTIONS)
    migrations.upgrade(database)
    locks = Locks(conf.volume_lock_timeout, share_of(conf.osapi_threads), MOMENT)
    access = Access(database, backends)
    node = Node(database, backends, conf.host, conf.storage_availability_zone)
    types = Types(database, conf.default_volume_type)
    jobs = Jobs(conf.create_wait)
    wiping = Wiping(backends)
    messages = Messages(database, conf.message_ttl)
    scheduler = Scheduler(node, types, messages, _multipliers(conf))
    places = Places(node, backends, scheduler, conf.storage_availability_zone)
    answered = Answers(database)
    purging = Purging(database, conf.database.deleted_rows_ttl)
    making = Making(database, backends, locks, node=node, wiping=wiping)
    services = Services(
        volumes=Volumes(
            database,
            making=making,
            types=types,
            node=node,
            jobs=jobs,
            places=places,
        ),
        attachments=Attachments(
            database,
            access,
            locks,
            answered,
            widen=conf.mixed_modes_per_host == "widen",
        ),
        types=types,
        node=node,
        snapshots=Snapshots(database, backends, locks, jobs),
        extending=Extending(
            database,
            backends,
            locks,
            access=access,
            node=node,
            jobs=jobs,
            places=places,
        ),
        reverting=Reverting(database, backends, locks, jobs),
        wiping=wiping,
        handing=Handing(
            database,
            backends,
            locks,
            making=making,
            types=types,
            node=node,
            jobs=jobs,
            places=places,
        ),
        resetting=Resetting(database, backends, locks),
        moving=Moving(
            database,
            backends,
            locks,
            types=types,
            node=node,
            jobs=jobs,
            places=places,
            wiping=wiping,
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
            places=places,
            wiping=wiping,
        ),
    )
    reconcile = Reconcile(
        database,
        backends,
        locks,
        access=access,
        node=node,
        resume=Resume(database, backends, jobs, making, services),
    )
    reports = reporter.make(conf, node.reports)
    timer = Loop("reconcile", conf.reconcile_interval, reconcile.run)
    loops: tuple[Loop | Wiping | Reporter, ...] = (
        timer,
        Loop("database", PROBE_SECONDS, database.probe),
        Loop("stats", conf.backend_stats_polling_interval, node.refresh),
        Loop("answers", unanswered.MOMENT, answered.once),
        Loop("purge", _PURGE_SECONDS, purging.once),
        wiping,
        *([reports] if reports else []),
    )
    app = build_app(services, _api_settings(conf))
    return Assembly(app, services, reconcile, backends, loops, database, jobs, timer)


def database_url(conf: cfg.ConfigOpts) -> str:
    """The database's SQLAlchemy URL: as configured, else the file in state_path."""
    default = f"sqlite:///{os.path.join(conf.state_path, 'lunshare.sqlite')}"
    return str(conf.database.connection or default)


def _multipliers(conf: cfg.ConfigOpts) -> dict[str, float]:
    """Of each weigher, from the option that is named after it."""
    return {
        name: conf.scheduler[f"{name}_weight_multiplier"] for name in weighers.WEIGHERS
    }


def _api_settings(conf: cfg.ConfigOpts) -> ApiSettings:
    return ApiSettings(
        auth_strategy=conf.auth_strategy,
        public_endpoint=conf.public_endpoint,
        max_limit=conf.osapi_max_limit,
        max_body=conf.osapi_max_request_body_size,
    )
