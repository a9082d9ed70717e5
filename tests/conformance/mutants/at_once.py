# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that confuse two calls at once, for two volumes."""

from __future__ import annotations

from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.fake.fake_driver import FakeVolumes
from tests.conformance.mutants.caught import caught_by


@caught_by("several_volumes_can_be_created_from_snapshots_at_once")
class CopiesAtOnceShareABuffer(FakeVolumes):
    """Each ``create_from`` ends with the bytes of the one that began last."""

    def _create_copy(self, verb, volume, origin):
        def noted():
            vars(self.storage)["buffer"] = origin()
            return vars(self.storage)["buffer"]

        present = volume.id in self.storage.disks
        disk = super()._create_copy(verb, volume, noted)
        if not present:
            buffer = vars(self.storage)["buffer"].copy()
            self.storage.disks[volume.id].blocks = buffer.blocks
        return disk


@caught_by("two_volumes_can_be_filled_at_once")
class FillsAtOnceShareABuffer(FakeVolumes):
    def _write(self, volume_id, blocks):
        numbers = {number for number, _ in blocks}
        vars(self.storage)["buffer"] = blocks or vars(self.storage).get("buffer")
        self.failures.at("fill.half")
        buffer = vars(self.storage)["buffer"] or []
        super()._write(volume_id, [b for b in buffer if b[0] in numbers])

    def _verify_copy(self, volume_id, source):
        return None


@caught_by("several_volumes_can_be_created_from_snapshots_at_once")
class ASecondCopyOfASnapshotFails(FakeVolumes):
    """The first one that ends deactivates the snapshot."""

    def _create_copy(self, verb, volume, origin):
        active = vars(self.storage).setdefault("active", set())
        active.add(verb)
        disk = super()._create_copy(verb, volume, origin)
        if verb not in active:
            raise CommandFailed((verb, volume.id), 5, "the snapshot is not active")
        active.discard(verb)
        return disk


@caught_by("two_volumes_can_be_filled_at_once")
class ASecondFillEndsTheFirst(FakeVolumes):
    """The copy's process has one name on the node, and a new one ends the old."""

    def _copy_from(self, volume, source):
        number = vars(self.storage).get("fills", 0) + 1
        vars(self.storage)["fills"] = number
        super()._copy_from(volume, source)
        if vars(self.storage)["fills"] != number:
            raise CommandFailed(("fill", volume.id), -15, "it was ended")
