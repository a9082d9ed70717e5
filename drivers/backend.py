# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume driver and a target driver as one backend, in Cinder's verbs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.values import Connector, Disk, Export, Snapshot, Volume


class Backend:
    """A volume driver and a target driver under one name, in Cinder's verbs.

    This is what a control plane uses. Arguments and errors are those of the
    two drivers; each verb is repeat-safe because theirs are.
    """

    def __init__(self, volumes: VolumeDriver, target: TargetDriver) -> None:
        self.volumes, self.target = volumes, target
        self.name = volumes.name

    @property
    def extends_open(self) -> bool:
        """Whether a volume can grow, and its hosts see it, while they have it."""
        grows = self.volumes.abilities.extends_open
        return grows and self.target.abilities.shows_growth

    def create(self, volume: Volume) -> Disk:
        """Make the volume's disk; it is exported to nobody."""
        return self.volumes.create(volume)

    def clone(self, volume: Volume, source: Volume) -> Disk:
        """Make the volume with the bytes that the source has at one moment.

        A snapshot that goes by the new volume's id keeps that moment until
        the copy is made. The source is held for no longer than that takes, so
        a caller with locks takes the three steps by itself.
        """
        moment = Snapshot(volume.id, source.id, source.size)
        self.volumes.create_snapshot(moment)
        disk = self.volumes.create_from(volume, moment)
        self.volumes.delete_snapshot(moment.id)
        return disk

    def delete(self, volume_id: str) -> None:
        """Take away the export, then the disk."""
        self.target.remove(volume_id)
        self.volumes.delete(volume_id)

    def initialize_connection(
        self, volume: Volume, connector: Connector
    ) -> dict[str, Any]:
        """Open the volume to one host, in the connector's mode; others see nothing.

        Returns connection_info in os-brick's words.
        """
        disk = self.volumes.disk(volume.id)
        export = Export(volume.id, disk, (connector,))
        self.target.apply(export, only={connector.initiator})
        return self.target.connection(volume, connector)

    def terminate_connection(self, volume: Volume, connector: Connector) -> None:
        """Close the volume to one host; its writes have landed when this returns."""
        self.target.apply(Export(volume.id), only={connector.initiator})

    def apply(self, volume: Volume, connectors: Iterable[Connector]) -> tuple[str, ...]:
        """Make the live export of one volume equal to these connectors.

        With none, the export is taken away.
        """
        wanted = tuple(connectors)
        if not wanted:
            return self.target.remove(volume.id)
        return self.target.apply(
            Export(volume.id, self.volumes.disk(volume.id), wanted)
        )
