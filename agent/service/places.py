# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Names of places as clients have them: host@backend#pool, availability zones."""

from __future__ import annotations

from agent.backends import Backends
from agent.errors import Invalid, NotFound
from agent.service.node import Node


class Places:
    """The places of this node, by their names."""

    def __init__(self, node: Node, backends: Backends, zone: str) -> None:
        self._node, self._backends, self.zone = node, backends, zone

    def backend(self, host: str) -> str:
        """The backend that is meant by host@backend or host@backend#pool.

        :raises NotFound: this node has no such backend.
        """
        name = host.partition("@")[2].partition("#")[0]
        whole = self._node.host_of(name)
        here = host in (whole, whole.partition("#")[0])
        if not here or self._backends.find(name) is None:
            raise NotFound("host", host)
        return name

    def check_zone(self, zone: str | None) -> None:
        """Let in what names no other zone than ours.

        :raises Invalid: it does.
        """
        if zone not in (None, self.zone):
            raise Invalid(
                f"availability_zone {zone!r} is unknown: this node is in {self.zone!r}"
            )
