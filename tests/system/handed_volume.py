# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What changes who may write a volume, for a node that is killed in it.

One of three hosts may write; the policy allows one. ``killable_node`` does the rest.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable

from lunshare.agent.db import attachments
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import Attachment, Mode, NewBatch, NewVolume, Volume
from lunshare.agent.service.attachments import connectors
from lunshare.agent.service.attachments.handover import NewHandover
from tests.system import killable_node
from tests.system.hosts import Host
from tests.system.killable_node import CTX, MANY, Scene

VOLUME = "handed"
WRITER, FOLLOWER, READER = HOSTS = ("alpha", "beta", "gamma")
_MANY = ("many-1", "many-2", "many-3")
_POLICY = {"lunshare:max_writers": "1", "lunshare:writers": "alpha, beta"}


class HandedVolume(Scene):
    """The volume, and its hosts."""

    def restore(self) -> None:
        """The first host writes without a lease, the others read; there are no more."""
        services, volume = self.assembly, self.volume(VOLUME)
        for host in HOSTS:
            services.fences.unfence(CTX, host)
        services.metadata.change(CTX, volume.id, lambda _: _POLICY)
        for row in self.volumes.get(CTX, volume.id).attachments:
            if row.attached_host not in HOSTS:
                self.detach(row)
            elif row.mode is Mode.RW:
                services.mode_changes.change(CTX, row.id, Mode.RO)
        for host in HOSTS:
            if not self._of(volume, host):
                created = self.attach(VOLUME, host, "ro")
                self.attachments.complete(CTX, created.id)
        services.mode_changes.change(CTX, self.of(WRITER).id, Mode.RW)

    def volume(self, name: str) -> Volume:
        for each in self.volumes.list(CTX, MANY):
            if each.name == name:
                return each
        types = self.assembly.types
        if "shared" not in [each.name for each in types.list(CTX)]:
            types.create(CTX, "shared", extra_specs={"multiattach": "<is> True"})
        return self.volumes.create(CTX, NewVolume(1, name, volume_type="shared"))

    def of(self, host: str) -> Attachment:
        return self.attachment(VOLUME, host)

    def hand_over(self, force: bool) -> None:
        """From the writer to the follower."""
        volume_id = self.volume(VOLUME).id
        new = NewHandover(volume_id, self.of(FOLLOWER).id, self.of(WRITER).id, force)
        shown = self.assembly.handovers.hand_over(CTX, new)
        assert shown["handover"]["status"] == "done", shown

    def change(self, host: str, mode: Mode) -> None:
        self.assembly.mode_changes.change(CTX, self.of(host).id, mode)

    def swap(self) -> None:
        """Without a handover: the writer reads, then the follower writes."""
        self.change(WRITER, Mode.RO)
        self.change(FOLLOWER, Mode.RW)

    def end_lease(self) -> None:
        """It is over at once, and the next of the list follows."""
        row, lease = self.of(WRITER).id, NewLease(3600, then_next=True)
        services = self.assembly
        services.mode_changes.change(CTX, row, Mode.RW, lease=lease)
        with self.assembly.database.writing() as connection:
            attachments.set_values(connection, row, lease_ends=0.0)
        services.leases.end(row)

    def fence(self, writes_only: bool) -> None:
        fence = self.assembly.fences.fence(CTX, WRITER, writes_only)
        assert fence.status == "fenced", fence

    def unfence(self) -> None:
        self.fence(False)
        self.assembly.fences.unfence(CTX, WRITER)

    def attach_many(self) -> list[str]:
        hosts = [connectors.parse(Host(name).connector) for name in _MANY]
        key = str(uuid.uuid4())
        new = NewBatch(self.volume(VOLUME).id, key, hosts, Mode.RO)
        return [row.id for row in self.assembly.batches.attach(CTX, new)]

    def detach_many(self) -> None:
        ids = self.attach_many()
        self.assembly.batches.detach(CTX, self.volume(VOLUME).id, ids)


OPERATIONS: dict[str, Callable[[HandedVolume], object]] = {
    "handover": lambda s: s.hand_over(force=False),
    "forced handover": lambda s: s.hand_over(force=True),
    "demote, and promote": lambda s: s.swap(),
    "end of a lease": lambda s: s.end_lease(),
    "fence": lambda s: s.fence(writes_only=False),
    "fence of writing": lambda s: s.fence(writes_only=True),
    "fence, and its end": lambda s: s.unfence(),
    "attach of many": lambda s: s.attach_many(),
    "attach and detach of many": lambda s: s.detach_many(),
}


def live(argv: list[str], parent: socket.socket) -> int:
    """Do the operations that the parent sends, until a step kills the process."""
    return killable_node.live(argv, parent, HandedVolume, OPERATIONS)
