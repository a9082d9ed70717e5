# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Extend a volume, and show its hosts the new size."""

from __future__ import annotations

from dataclasses import replace

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import status_changes, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import AgentError, Exhausted, Invalid
from lunshare.agent.model.quota_table import GIGABYTES
from lunshare.agent.model.records import RequestContext, Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments.access import Access, read_wanted
from lunshare.agent.service.driver_values import size_bytes
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    is_refusal,
    wrong_status,
)
from lunshare.agent.service.volumes.steps import Operation, Step, VolumeSteps
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)

_EXTEND = Operation(
    "its extension",
    (VolumeStatus.EXTENDING,),
    failed=VolumeStatus.ERROR_EXTENDING,
    refused=VolumeStatus.AVAILABLE,
    retried=True,
)


class VolumeExtender:
    """Extends volumes, also while hosts use them."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        access: Access,
        node: Node,
        jobs: JobRunner,
        pools: Pools,
        quotas: Quotas,
    ) -> None:
        self._db, self._backends = db, backends
        self._access, self._node, self._jobs = access, node, jobs
        self._pools, self._rows = pools, VolumeRows(db)
        self._steps, self._quotas = VolumeSteps(db, locks), quotas

    def extend(
        self, ctx: RequestContext, volume_id: str, size: int, in_use: bool
    ) -> int:
        """Extend it to ``size`` GiB; return how many hosts use it.

        Hosts see the new size when they rescan. ``in_use``: also while hosts use
        it. Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: the size, its status, or its driver does not allow it.
        :raises Busy: it has just changed.
        :raises Exhausted: its pool has no space, or a quota of its project; the
            volume is unchanged.
        :raises BackendFailed: its size is unknown. The volume is error_extending.
            Extend it again, or wait for the next reconcile.
        """
        volume = self._rows.get(volume_id, ctx)
        self._check(volume, size, in_use)
        self._check_space(volume, size)
        with self._db.writing() as connection:
            current = volumes.require(connection, volume_id, ctx)
            if not status_changes.is_unchanged(volume, current):
                raise changed_meanwhile(volume_id)
            hosts = self._check(current, size, in_use)
            if not status_changes.change_status(
                connection,
                current,
                VolumeStatus.EXTENDING,
                unattached=not hosts,
                intent={"size": size},
            ):
                raise changed_meanwhile(volume_id)
            self._quotas.check(
                connection,
                volume.project_id,
                volume.volume_type_id,
                GIGABYTES,
                size=size,
            )
        self._jobs.run_and_wait(self.finish_extend, volume_id, volume.backend)
        return hosts

    def finish_extend(self, volume_id: str) -> None:
        """Extend a volume that is extending; others are ignored. Can be repeated."""
        with self._steps.run(volume_id, _EXTEND) as step:
            if step is None:
                return
            volume = step.volume
            size = (volume.intent or {})["size"]
            try:
                self._extend(volume, size)
            except AgentError as error:
                self._read_size(step, error)
                raise
            step.done_values["size"] = size
        self._node.count_volume(volume.backend, 0, size - volume.size)
        LOG.info(
            "[%s] volume extended: volume=%s size=%s", volume.backend, volume_id, size
        )

    def _extend(self, volume: Volume, size: int) -> None:
        with self._backends[volume.backend].for_job() as backend:
            backend.volumes.extend(DriverVolume(volume.id, size_bytes(size)))
        self._show_size(volume)

    def _read_size(self, step: Step, error: AgentError) -> None:
        """Give the row of a refused extend the size of its disk.

        This attempt changed nothing, but one before it may have.
        """
        volume = step.volume
        if is_refusal(error):
            with self._backends[volume.backend].for_job() as backend:
                size = backend.volumes.disk(volume.id).size // GIB
            step.failed_values["size"] = max(volume.size, size)

    def _show_size(self, volume: Volume) -> None:
        """Show the new size to the hosts that have access, and affect no other host.

        A host whose detach fails would make the extend fail.
        """
        with self._db.reading() as connection:
            wanted = read_wanted(connection, volume.id, None)
        hosts = frozenset(access.initiator for access in wanted.accesses)
        if hosts:
            self._access.apply(volume, wanted=replace(wanted, only=hosts))

    def _check(self, volume: Volume, size: int, in_use: bool) -> int:
        """Check what the row and its attachments allow; return how many these are."""
        _check_size(volume, size)
        _check_hosts(
            volume, in_use, self._backends[volume.backend].drivers.extends_open
        )
        return len(volume.attachments)

    def _check_space(self, volume: Volume, size: int) -> None:
        more = size - volume.size
        free = self._pools.free_space(volume.backend)
        if more > free:
            raise Exhausted(
                f"new_size {size} GiB is {more} GiB more, and backend {volume.backend}"
                f" has space for {free:.0f}: ask for less or free some"
            )


def _check_size(volume: Volume, size: int) -> None:
    failed = volume.own_status is VolumeStatus.ERROR_EXTENDING
    least = (volume.intent or {})["size"] if failed else volume.size + 1
    if size < least:
        size_text = (
            f"may already have {least} GiB" if failed else f"has {volume.size} GiB"
        )
        raise Invalid(
            f"os-extend.new_size: volume {volume.id} {size_text}; give {least} or more."
        )
    if not failed and volume.status not in (
        VolumeStatus.AVAILABLE,
        VolumeStatus.IN_USE,
    ):
        raise wrong_status(volume, "extended", "available or in-use")


def _check_hosts(volume: Volume, in_use: bool, while_open: bool) -> None:
    if volume.status is VolumeStatus.IN_USE and not in_use:
        raise Invalid(
            f"Invalid volume: volume {volume.id} is in-use; to extend it, use"
            " microversion 3.42 or later, or delete its attachments"
        )
    if volume.attachments and not while_open:
        raise Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments, and its backend cannot extend a volume that a host may use;"
            " delete those first"
        )
