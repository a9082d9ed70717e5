# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts mount the share themselves and open the volume's file: the classic NFS way.

There is nothing between a host and the file, so there is no fence: whoever may
mount the share reads and writes every volume in it, attached or not. Modes are
not enforced here; read-only is refused and never silently more. Where
access has to be ended for sure, export with LIO instead.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers import share_options
from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.base import Root, TargetDriver
from lunshare.drivers.errors import TargetFailed, Unsupported
from lunshare.drivers.share_options import Share
from lunshare.drivers.values import (
    Connector,
    Disk,
    Export,
    LiveExport,
    Mode,
    Volume,
    volume_uuid,
)


class NfsTarget(TargetDriver):
    """Tells hosts where the file is. It opens nothing and can close nothing."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = share_options.OPTIONS
    PROTOCOL: ClassVar[str] = "NFS"
    #: None of them: a host that mounts the share is nobody's to hold back.
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities()

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._base: str = options["nfs_mount_point_base"]
        self._mutex = threading.Lock()
        self._shares: dict[str, Share] = {}
        # Volume id to share: what ``apply`` saw, for ``connection_info`` does no I/O.
        self._where: dict[str, Share] = {}

    def check(self) -> None:
        """:raises Misconfigured: the shares are not well described."""
        self._known()

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Check what is wanted. Nothing is live, so nothing changes, ever.

        An access that is no longer wanted is **not** ended: its host may still
        have the file open, and no error says so.

        :raises Unsupported: a host is to have it read-only.
        """
        for connector in export.connectors:
            if connector.mode is not Mode.RW:
                raise Unsupported(
                    f"{connector.mode} for {connector.initiator} by NFS",
                    "attach it rw, or use a backend with target_driver = lio, where"
                    " the target enforces read-only",
                )
        if export.disk is not None and export.connectors:
            self._remember(export.volume_id, export.disk)
        return ()

    def remove(self, volume_id: str) -> tuple[str, ...]:
        with self._mutex:
            self._where.pop(volume_uuid(volume_id), None)
        return ()

    def observe(self) -> tuple[LiveExport, ...]:
        """Nothing: no server tells who has mounted its share for what."""
        return ()

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        with self._mutex:
            share = self._where.get(volume.id)
        if share is None:
            raise TargetFailed(volume.id, "it was not exported: apply comes first")
        return {
            "driver_volume_type": "nfs",
            "export": share.source,
            "name": volume.name,
            "options": f"-o {share.options}" if share.options else None,
            "format": "raw",
            "mount_point_base": self._base,
            "volume_id": volume.id,
        }

    def _remember(self, volume_id: str, disk: Disk) -> None:
        share = self._known().get(PurePosixPath(disk.path).parent.name)
        if share is None:
            raise TargetFailed(volume_id, f"{disk.path} is on no share of {self.name}")
        with self._mutex:
            self._where[volume_id] = share

    def _known(self) -> Mapping[str, Share]:
        """The shares by their mount points' names; read once."""
        if not self._shares:
            found = share_options.configured(self.options)
            self._shares = {share.digest: share for share in found}
        return self._shares
