# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about disks that come, go, or are wiped."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.values import Manageable, Wipe


class ManageTakesOurs(FakeVolumes):
    def manage(self, volume, reference):
        ours = self.storage.disks.pop(reference.removeprefix("volume-"), None)
        if ours is not None:
            self.storage.foreign_disks[reference] = ours
        return super().manage(volume, reference)


class ManageableHasOurs(FakeVolumes):
    def manageable(self):
        ours = (Manageable(f"volume-{d.volume_id}", d.size) for d in self.disks())
        return (*super().manageable(), *ours)


class ManageableHasNoSizes(FakeVolumes):
    def manageable(self):
        return tuple(Manageable(each.reference, 0) for each in super().manageable())


class ManageEmptiesTheDisk(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        disk.blocks = None
        return disk


class ManageTakesAnything(FakeVolumes):
    def manage(self, volume, reference):
        if reference not in self.storage.foreign_disks:
            return self.create(volume)
        return super().manage(volume, reference)


class UnmanageDeletes(FakeVolumes):
    def unmanage(self, volume_id):
        self.delete(volume_id)


class UnmanageIgnoresWhoHasItOpen(FakeVolumes):
    def unmanage(self, volume_id):
        self.storage.open.clear()
        super().unmanage(volume_id)


class UnmanageOfTheUnknownFails(FakeVolumes):
    def unmanage(self, volume_id):
        self.disk(volume_id)
        super().unmanage(volume_id)


class Wiping(FakeVolumes):
    """Not broken; what is made of it is."""

    bound = {
        "options": {"fake_thin": False, "fake_capacity_gb": 1, "fake_wipe": True},
    }


class WipeSaysGoneAndKeepsTheRoom(Wiping):
    def wipe(self, name, most):
        left = super().wipe(name, most)
        if left is None:
            self.storage.provisioned += 4096
        return left


class WipeIsRememberedNotLookedUp(Wiping):
    """What was wiped is forgotten at a restart."""

    def __init__(self, *given):
        super().__init__(*given)
        for disk in self.storage.deleted.values():
            disk.wiped = 0


class WipeDoesItAllAtOnce(Wiping):
    def wipe(self, name, most):
        return super().wipe(name, 1 << 60)


class WipeTakesAnotherDiskToo(Wiping):
    def wipe(self, name, most):
        for disk in self.storage.disks.values():
            disk.blocks = None
        return super().wipe(name, most)


class WipeTakesAnyName(Wiping):
    def wipe(self, name, most):
        self.storage.foreign_disks.pop(name, None)
        return super().wipe(name, most)


class WipesAreForgotten(Wiping):
    def wipes(self) -> tuple[Wipe, ...]:
        return ()


class DeletedDisksShareOneName(Wiping):
    def delete(self, volume_id):
        held: dict[str, Any] = dict(self.storage.deleted)
        super().delete(volume_id)
        for name in self.storage.deleted.keys() - held.keys():
            disk = self.storage.deleted.pop(name)
            self.storage.deleted[f"deleted-{volume_id}"] = disk


HANDING = [
    (ManageTakesOurs, "a_volume_of_ours_cannot_be_taken_over"),
    (ManageableHasOurs, "a_volume_of_ours_cannot_be_taken_over"),
    (ManageableHasNoSizes, "a_disk_that_is_listed_has_its_size"),
    (ManageEmptiesTheDisk, "a_volume_given_away_can_be_taken_back"),
    (ManageTakesAnything, "what_is_not_there_cannot_be_taken_over"),
    (UnmanageDeletes, "a_volume_given_away_can_be_taken_back"),
    (UnmanageIgnoresWhoHasItOpen, "a_volume_that_is_open_is_not_given_away"),
    (UnmanageOfTheUnknownFails, "giving_the_unknown_away_is_success"),
    (WipeSaysGoneAndKeepsTheRoom, "a_deleted_disk_is_wiped_in_steps"),
    (WipeIsRememberedNotLookedUp, "a_deleted_disk_is_wiped_in_steps"),
    (WipeDoesItAllAtOnce, "a_deleted_disk_is_wiped_in_steps"),
    (WipeTakesAnotherDiskToo, "a_deleted_disk_is_wiped_in_steps"),
    (WipeTakesAnyName, "a_strangers_disk_is_not_wiped"),
    (WipesAreForgotten, "a_deleted_disk_is_wiped_in_steps"),
    (
        DeletedDisksShareOneName,
        "a_volume_can_be_made_again_while_the_old_one_is_wiped",
    ),
]
