# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of one backend, created once, and what is done at a start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from cinder import exception
from lunshare.cinder import target_services, wanted_access
from lunshare.cinder.backend_section import Section
from lunshare.cinder.cinder_rows import CinderRows, backend_of, has_direct, node_of
from lunshare.cinder.host_connections import HostConnections
from lunshare.cinder.local_migration import LocalMigration
from lunshare.cinder.scheduler_stats import SchedulerStats
from lunshare.drivers import wiping
from lunshare.drivers.backend import Backend
from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.errors import DriverError, InvalidValue, UnknownDisk
from lunshare.drivers.values import Mode

LOG = logging.getLogger(__name__)

# Statuses of a volume that has no attachment, so that no export is expected.
_UNEXPORTED = frozenset({"available", "creating", "deleting", "error"})
_WIPE_SECONDS = 60.0  # until what failed is tried again
_MOST_NAMED = 10  # disks without a volume, in the log


class BackgroundWipe:
    """A thread that wipes deleted disks, after a start and after each delete."""

    def __init__(self, volumes: VolumeDriver, options: Mapping[str, Any]) -> None:
        self._volumes, self._options = volumes, options
        self._more, self._never = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start with what an earlier process has left; a second call does nothing."""
        if self._thread is None and self._volumes.abilities.wipes_deleted:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Check for deleted disks at once."""
        self._more.set()

    def _run(self) -> None:
        while True:
            self._more.clear()
            try:
                for disk in self._volumes.wipes():
                    wiping.wipe_disk(self._volumes, disk, self._options, self._never)
            except DriverError as error:
                LOG.error("[%s] wipe failed: %s", self._volumes.name, error)
            except Exception:
                LOG.exception("[%s] wipe failed unexpectedly", self._volumes.name)
            self._more.wait(_WIPE_SECONDS)


class Assembled:
    """One backend. Until ``check`` returned, nothing else of it may be used."""

    backend: Backend
    options: Mapping[str, Any]
    connections: HostConnections
    wiper: BackgroundWipe
    migration: LocalMigration

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        configuration: Any,
        database: Any,
        of_operator: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Read the section, and claim what only one control plane may use.

        No error is raised: Cinder would forget the backend. ``check`` raises it.
        """
        self.name: str = configuration.config_group
        self._of_operator = of_operator
        self._rows = CinderRows(database)
        self._later: dict[str, Any] = {}
        # The volumes of a start at which the target did not list its exports.
        self._unlisted: list[Any] = []
        self._host = ""
        self._problem: str | None = None
        self._misconfigured: DriverError | None = None
        try:
            self._create(conf)
        except DriverError as error:
            self._misconfigured = error

    @property
    def pool_name(self) -> str:
        """The part after the # in host@backend#pool."""
        return str(self._of_operator()["pool_name"])

    def check(self) -> None:
        """Check that the backend can work, and start its thread.

        :raises DriverError: one sentence that says what to correct.
        """
        problem = self._misconfigured or self._find_problem()
        self._note_problem(str(problem) if problem else None)
        if problem:
            raise problem
        self.wiper.start()

    def read_stats(self) -> dict[str, Any]:
        """Return the stats of the backend, and repeat what failed at the start."""
        stats = SchedulerStats(self.backend, self._of_operator())
        figures = stats.read()
        self._note_problem(stats.problem)
        if stats.problem is None:
            self._repeat()
        return figures

    def connector_problem(self, sent: Mapping[str, Any]) -> str:
        """Return why a connector cannot be used, or ""."""
        can = self.backend.target.abilities
        try:
            mode = wanted_access.asked_mode(sent)
            if self.backend.target.PROTOCOL == "iSCSI" and not sent.get("initiator"):
                return "initiator"
            wanted_access.name_of(sent)
        except InvalidValue as error:
            return str(error)
        if mode is not Mode.RW and not can.enforces_read_only:
            return (
                "mode rw: this target does not enforce read-only (a client that creates"
                " an attachment and connects it in one request sends the mode too late)"
            )
        return ""

    def start_volumes(self, volumes: Sequence[Any], host: str) -> None:
        """Apply the rows of every volume that may have hosts, or has an export.

        ``host`` is this backend's host@backend.
        Cinder itself calls ``start_volume`` for those in use.
        """
        self._host = host
        live = self._live_exports()
        if live is None:
            self._unlisted += volumes
        for volume in volumes:
            if volume.status != "in-use" and _may_have_hosts(volume, live or set()):
                self._try_to_start(volume)
        if live is not None:
            self._report_unknown({volume.name_id for volume in volumes}, live, host)

    def _live_exports(self) -> set[str] | None:
        """Return the volumes that are exported; None if the target does not answer.

        Cinder ends the process when this fails at its start, and no volume is started.
        """
        try:
            exports = self.backend.target.observe()
            return {export.volume_id for export in exports if not export.ended}
        except DriverError as error:
            LOG.error(
                "[%s] exports not listed, it is tried again: %s", self.name, error
            )
        return None

    def _try_to_start(self, volume: Any) -> None:
        try:
            self.start_volume(volume)
        except DriverError as error:
            LOG.error("[%s] export not started: %s", self.name, error)

    def start_volume(self, volume: Any) -> None:
        """Apply the rows of one volume; what may work later is repeated.

        :raises UnknownDisk: its disk is lost.
        """
        try:
            changed = self.connections.apply(volume)
        except UnknownDisk:
            raise
        except exception.VolumeNotFound:
            self._later.pop(volume.id, None)  # deleted meanwhile, with its export
            return
        except Exception as error:  # also without a database
            LOG.error(
                "[%s] export not started, it is tried again: volume=%s: %s",
                self.name,
                volume.id,
                error,
            )
            self._later[volume.id] = volume
            return
        self._later.pop(volume.id, None)
        if changed:
            LOG.info(
                "[%s] export changed: volume=%s %s",
                self.name,
                volume.id,
                "; ".join(changed),
            )

    def _create(self, conf: cfg.ConfigOpts) -> None:
        self.backend, self.options = Section(conf, self.name).load()
        self.connections = HostConnections(self.backend, self._rows)
        self.wiper = BackgroundWipe(self.backend.volumes, self.options)
        self.migration = LocalMigration(
            conf, self.backend, self.connections, self._rows, self.wiper.wake
        )
        self.backend.volumes.claim()

    def _find_problem(self) -> DriverError | None:
        try:
            self.backend.volumes.check()
            self.backend.target.check()
            if self.backend.target.PROTOCOL == "iSCSI":
                target_services.require_masked()
        except DriverError as error:
            return error
        return None

    def _note_problem(self, problem: str | None) -> None:
        """Log one line when the state of the backend changes."""
        if problem != self._problem:
            self._problem = problem
            level = logging.ERROR if problem else logging.INFO
            LOG.log(
                level,
                "[%s] backend state: up=%s problem=%s",
                self.name,
                problem is None,
                problem,
            )

    def _repeat(self) -> None:
        """Repeat what failed at the start, with the volumes as they are now.

        What may be on a lost part of the pool waits for that part.
        """
        try:
            volumes = self._read_again(self._later.values())
            later = {volume.id: volume for volume in volumes}
            unlisted, self._unlisted = self._read_again(self._unlisted), []
            if unlisted:
                self.start_volumes(unlisted, self._host)
        except Exception as error:  # without a database; the next stats try again
            LOG.error("[%s] exports not started: %s", self.name, error)
            return
        for volume_id in self._later.keys() - later.keys():
            del self._later[volume_id]  # deleted or migrated meanwhile
        for volume in later.values():
            if not self.backend.volumes.lost(volume.name_id):
                self._try_to_start(volume)

    def _read_again(self, volumes: Iterable[Any]) -> list[Any]:
        """Return those of these volumes that are still on this backend."""
        rows = self._rows.read_again(volumes)
        return [row for row in rows if backend_of(str(row.host)) == self._host]

    def _report_unknown(self, known: set[str], live: set[str], host: str) -> None:
        """Log disks and exports without a volume. They are not touched.

        The kernel's target has the exports of the node's other backends too.
        """
        try:
            disks = {disk.volume_id for disk in self.backend.volumes.disks()}
        except DriverError as error:
            LOG.error("[%s] disks not listed: %s", self.name, error)
            return
        if exports := live - known:
            exports -= self._rows.on_node(exports, node_of(host))
        for what, ids in (("disks", disks - known), ("exports", exports)):
            if unknown := sorted(ids):
                LOG.warning(
                    "[%s] %d %s without a volume of this backend, such as: %s",
                    self.name,
                    len(unknown),
                    what,
                    ", ".join(unknown[:_MOST_NAMED]),
                )


def _may_have_hosts(volume: Any, live: set[str]) -> bool:
    return (
        volume.name_id in live or volume.status not in _UNEXPORTED or has_direct(volume)
    )
