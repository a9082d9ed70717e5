# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The volumes, hosts and snapshots on which killed operations work."""

from __future__ import annotations

from collections.abc import Callable

from lunshare.agent.model.records import Mode, NewAttachment, NewSnapshot
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.restart.killing import attach_request
from tests.stands.node import CTX, Node

BYTES = b"what the copies are to have"


class Scene:
    """A volume with two attached hosts, and one more for the operation."""

    def __init__(self, node: Node) -> None:
        choose_from_both(node, False)
        self.volume = node.shared_volume()
        take = node.services.attachments.create
        self.writer = take(CTX, attach_request(self.volume.id, "writer", "rw")).id
        self.reader = take(CTX, attach_request(self.volume.id, "reader", "ro")).id
        for attachment in (self.writer, self.reader):
            node.services.attachments.complete(CTX, attachment)
        self.reserved = take(CTX, NewAttachment(self.volume.id, mode=Mode.RW)).id
        self.lonely = node.plain_volume()
        self.only = take(CTX, attach_request(self.lonely.id, "lonely", "rw")).id
        self.idle = node.plain_volume()
        fake_storage.storage("fake").write(self.idle.id, 0, BYTES)
        self.free = node.plain_volume()
        self.written = node.plain_volume()
        held = fake_storage.storage("fake")
        for offset in (0, GIB - 4096):
            held.write(self.written.id, offset, BYTES)
        held.foreign_disks["somebodys"] = fake_storage.FakeDisk(GIB // 2)
        held.foreign = GIB // 2
        held.foreign_disks["somebodys"].write(0, BYTES)
        self.snapshot = node.services.snapshots.create(
            CTX, NewSnapshot(self.idle.id)
        ).id


def choose_from_both(node: Node, both: bool) -> None:
    host = node.services.node.host_of("other").partition("#")[0]
    node.services.node.set_service(CTX, host, "cinder-volume", both, None)


Operation = Callable[[Node, Scene], object]
