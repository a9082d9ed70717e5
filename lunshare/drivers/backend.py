# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume driver and a target driver under one name: one backend."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import Any

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.drifts import Drift
from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import Connector, Disk, Export, Volume


class Backend:
    """The volume driver and the target driver of one backend section.

    This is what a control plane uses. Arguments and errors are those of the
    two drivers. Each verb can be repeated, as the verbs of the drivers can.
    """

    def __init__(self, volumes: VolumeDriver, target: TargetDriver) -> None:
        self.volumes, self.target = volumes, target
        self.name = volumes.name

    @property
    def extends_open(self) -> bool:
        """Whether a volume can grow while hosts use it, and they see the new size."""
        grows = self.volumes.abilities.extends_open
        return grows and self.target.abilities.shows_growth

    def create(self, volume: Volume) -> Disk:
        """Create the volume's disk. It is not exported to any host.

        Can be repeated until the disk is used.

        :raises ForeignBytes: see ``VolumeDriver.require_empty``.
        """
        disk = self.volumes.create(volume)
        self.volumes.require_empty(volume.id)
        return disk

    def delete(self, volume_id: str) -> None:
        """Remove the export, then delete the disk."""
        self.target.remove(volume_id)
        self.volumes.delete(volume_id)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot. A driver without snapshots has created none."""
        with contextlib.suppress(Unsupported):
            self.volumes.delete_snapshot(snapshot_id)

    def apply(
        self,
        volume: Volume,
        wanted: Iterable[Connector],
        only: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """Make the volume's live accesses equal to ``wanted``; return what changed.

        With ``only``, a set of initiator names, no other initiator is read or
        changed: one that is in ``only`` and not in ``wanted`` is closed. Without
        it, every access that is not wanted is closed, and a volume without any
        wanted access is not exported any more. Closing an access does not need the
        disk. Raises as ``TargetDriver.apply`` and ``VolumeDriver.disk``.
        """
        connectors = tuple(wanted)
        if not connectors and only is None:
            return self.target.remove(volume.id)
        return self.target.apply(self._export(volume, connectors), only)

    def compare(self, volume: Volume, wanted: Iterable[Connector]) -> tuple[Drift, ...]:
        """Return how the volume's live accesses differ from ``wanted``.

        Changes nothing. Raises as ``TargetDriver.observe`` and ``VolumeDriver.disk``.
        """
        return self.target.compare(self._export(volume, tuple(wanted)))

    def _export(self, volume: Volume, connectors: tuple[Connector, ...]) -> Export:
        disk = self.volumes.disk(volume.id) if connectors else None
        return Export(volume.id, disk, connectors, volume.reservations)

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        """Return what the host needs to log in; see ``TargetDriver``."""
        return self.target.connection_info(volume, connector)
