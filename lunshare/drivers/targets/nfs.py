# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""NFS: hosts mount the share themselves and open the volume's file.

Nothing is between a host and the file, so there is no fencing: a host that can mount
the share can read and write every volume on it, attached or not. Modes are not
enforced, so a read-only access is refused; it is never granted as read-write. If access
must be ended for certain, export the files by LIO instead.
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
    require_uuid,
)


class NfsTarget(TargetDriver):
    """Returns to hosts where the file is. It cannot open or close an access."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = share_options.OPTIONS
    PROTOCOL: ClassVar[str] = "NFS"
    #: None: nothing controls a host that mounts the share.
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities()

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._base: str = options["nfs_mount_point_base"]
        self._mutex = threading.Lock()
        self._shares: dict[str, Share] = {}
        # By volume id. ``apply`` stores it, because ``connection_info`` does no I/O.
        self._share_of: dict[str, Share] = {}

    def check(self) -> None:
        """:raises Misconfigured: the options of the shares are not valid."""
        self._shares_by_digest()

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Check that the export is supported. It never changes anything.

        An access that is not wanted any more is **not** ended: its host may still
        have the file open, and no error shows that.

        :raises Unsupported: a connector is read-only.
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
            self._share_of.pop(require_uuid(volume_id), None)
        return ()

    def observe(self) -> tuple[LiveExport, ...]:
        """Empty: a server does not report which host uses which file."""
        return ()

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        with self._mutex:
            share = self._share_of.get(volume.id)
        if share is None:
            raise TargetFailed(volume.id, "it is not exported: call apply first")
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
        share = self._shares_by_digest().get(PurePosixPath(disk.path).parent.name)
        if share is None:
            raise TargetFailed(
                volume_id, f"{disk.path} is not on a share of {self.name}"
            )
        with self._mutex:
            self._share_of[volume_id] = share

    def _shares_by_digest(self) -> Mapping[str, Share]:
        """Return the shares by the names of their mount points; read once."""
        if not self._shares:
            shares = share_options.configured(self.options)
            self._shares = {share.digest: share for share in shares}
        return self._shares
