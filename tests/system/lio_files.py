# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume on a file of a share, for what is tried on a device as well."""

from __future__ import annotations

from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Volume
from tests.conformance.nfs_kit import share_options
from tests.system.lio_node import SIZE, HelperProcess, Node
from tests.system.nfs_server import BASE, NfsServer


class FileNode(Node):
    """Node, with a file for its disk."""

    def __init__(
        self, helper: HelperProcess, driver: LioTarget, server: NfsServer
    ) -> None:
        options = share_options(server.share, str(BASE))
        self._volumes = NfsVolumes("files", options, helper.client())
        self._volumes.check()
        self._begin(helper, driver)
        self.disk = self._volumes.create(Volume(self.id, SIZE))

    def close(self) -> None:
        """Leave nothing behind."""
        self._end()
        self._volumes.delete(self.id)
