# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Migrate a volume to another backend of this node: the root helper copies its bytes.

Cinder's own way attaches both volumes by iSCSI and copies with dd. Here no host is
attached, and the copy is read back before the source is deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg

from lunshare.cinder import node_location
from lunshare.cinder.cinder_rows import CinderRows
from lunshare.cinder.host_connections import HostConnections, driver_volume
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import DriverError, UnknownDisk, Unsupported
from lunshare.drivers.migration import require_same_sectors
from lunshare.drivers.values import Volume

LOG = logging.getLogger(__name__)

# Seconds in which Cinder stores the volume's new host, and between two reads of it.
_LATEST, _WAIT = 60.0, 0.5


class LocalMigration:
    """Copies volumes from one backend to others of the node."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        backend: Backend,
        connections: HostConnections,
        rows: CinderRows,
        deleted: Callable[[], None],
    ) -> None:
        """``deleted`` is called after the source's disk was deleted."""
        self._conf, self._backend = conf, backend
        self._connections, self._rows, self._deleted = connections, rows, deleted

    def migrate(self, volume: Any, host: Mapping[str, Any]) -> bool:
        """Copy a volume without hosts; return False if Cinder has to do it.

        The source's disk is deleted when Cinder has stored that the volume moved.

        :raises DiskBusy: a host has the volume; nothing is changed.
        :raises DriverError: nothing is left at the target.
        """
        section = node_location.other_section(self._conf, self._backend.name, host)
        if section is None:
            return False
        target, _ = section.load(check_names=False)
        with self._connections.without_hosts(volume):
            if not self._copy(driver_volume(volume), target.volumes):
                return False
            self._connections.set_moved(volume.name_id, True)
        threading.Thread(
            target=self._delete_source, args=(volume, host["host"]), daemon=True
        ).start()
        return True

    def _copy(self, volume: Volume, target: Any) -> bool:
        source = self._backend.volumes.disk(volume.id)
        if source.kind not in target.abilities.fills or _has_disk(target, volume.id):
            return False
        # Raises: Cinder's own copy of the bytes would be wrong, too.
        require_same_sectors(self._backend.volumes, target, volume.id)
        self._backend.target.remove(volume.id)
        # Pools round sizes up, each in its own way.
        copy = Volume(volume.id, max(volume.size, source.size))
        try:
            target.create(copy)
        except Unsupported:  # a pool of the same volume group has this name
            return False
        try:
            target.require_empty(copy.id)
            target.fill(copy, source)
        except BaseException:
            target.delete(volume.id)
            raise
        LOG.info(
            "[%s] volume copied: volume=%s to=%s",
            self._backend.name,
            volume.id,
            target.name,
        )
        return True

    def _delete_source(self, volume: Any, host: str) -> None:
        try:
            self._delete_when_moved(volume, host)
        finally:
            self._connections.set_moved(volume.name_id, False)

    def _delete_when_moved(self, volume: Any, host: str) -> None:
        until = time.monotonic() + _LATEST
        while self._rows.host_of(volume.id) != host:
            if time.monotonic() > until:
                LOG.error(
                    "[%s] disk not deleted: volume=%s was copied to %s, but Cinder has"
                    " not stored that it is there",
                    self._backend.name,
                    volume.id,
                    host,
                )
                return
            time.sleep(_WAIT)
        with self._connections.locked(volume.name_id):
            try:
                self._backend.volumes.delete(volume.name_id)
            except DriverError as error:
                LOG.error("[%s] disk not deleted: %s", self._backend.name, error)
        self._deleted()


def _has_disk(volumes: Any, volume_id: str) -> bool:
    try:
        volumes.disk(volume_id)
    except UnknownDisk:
        return False
    return True
