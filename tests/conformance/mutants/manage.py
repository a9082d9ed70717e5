# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about manage, unmanage or wipe."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import Manageable, Wipe


class ManageAcceptsAManagedDisk(FakeVolumes):
    def manage(self, volume, reference):
        ours = self.storage.disks.pop(reference.removeprefix("volume-"), None)
        if ours is not None:
            self.storage.foreign_disks[reference] = ours
        return super().manage(volume, reference)


class ManageableListsManagedDisks(FakeVolumes):
    def manageable(self):
        ours = (Manageable(f"volume-{d.volume_id}", d.size) for d in self.disks())
        return (*super().manageable(), *ours)


class ManageableReportsNoSizes(FakeVolumes):
    def manageable(self):
        return tuple(Manageable(each.reference, 0) for each in super().manageable())


class ManageErasesTheDisk(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        disk.blocks = None
        return disk


class ManageAcceptsAnyReference(FakeVolumes):
    def manage(self, volume, reference):
        if reference not in self.storage.foreign_disks:
            return self.create(volume)
        return super().manage(volume, reference)


class UnmanageDeletesTheDisk(FakeVolumes):
    def unmanage(self, volume_id):
        self.delete(volume_id)


class UnmanageIgnoresOpenDisks(FakeVolumes):
    def unmanage(self, volume_id):
        self.storage.open.clear()
        super().unmanage(volume_id)


class UnmanageOfAnUnknownVolumeFails(FakeVolumes):
    def unmanage(self, volume_id):
        self.disk(volume_id)
        super().unmanage(volume_id)


class Wiping(FakeVolumes):
    """A correct driver that wipes; its subclasses are broken."""

    bound = {
        "options": {"fake_thin": False, "fake_capacity_gb": 1, "fake_wipe": True},
    }


class WipeDoesNotFreeTheSpace(Wiping):
    def wipe(self, name, most):
        left = super().wipe(name, most)
        if left is None:
            self.storage.provisioned += 4096
        return left


class WipeProgressIsLostAtRestart(Wiping):
    """It forgets at a restart how much was wiped."""

    def __init__(self, *given):
        super().__init__(*given)
        for disk in self.storage.deleted.values():
            disk.wiped = 0


class WipeIgnoresItsLimit(Wiping):
    def wipe(self, name, most):
        return super().wipe(name, 1 << 60)


class WipeErasesOtherDisks(Wiping):
    def wipe(self, name, most):
        for disk in self.storage.disks.values():
            disk.blocks = None
        return super().wipe(name, most)


class WipeDeletesForeignDisks(Wiping):
    def wipe(self, name, most):
        self.storage.foreign_disks.pop(name, None)
        return super().wipe(name, most)


class WipesListsNothing(Wiping):
    def wipes(self) -> tuple[Wipe, ...]:
        return ()


class DeletedDisksHaveTheSameName(Wiping):
    def delete(self, volume_id):
        held: dict[str, Any] = dict(self.storage.deleted)
        super().delete(volume_id)
        for name in self.storage.deleted.keys() - held.keys():
            disk = self.storage.deleted.pop(name)
            self.storage.deleted[f"deleted-{volume_id}"] = disk


MANAGE = [
    (ManageAcceptsAManagedDisk, "manage_refuses_a_disk_that_is_already_managed"),
    (ManageableListsManagedDisks, "manage_refuses_a_disk_that_is_already_managed"),
    (ManageableReportsNoSizes, "manageable_lists_a_disk_with_its_size"),
    (ManageErasesTheDisk, "an_unmanaged_volume_can_be_managed_again"),
    (ManageAcceptsAnyReference, "manage_of_an_unknown_reference_fails"),
    (UnmanageDeletesTheDisk, "an_unmanaged_volume_can_be_managed_again"),
    (UnmanageIgnoresOpenDisks, "unmanage_refuses_an_open_disk"),
    (UnmanageOfAnUnknownVolumeFails, "unmanage_of_an_unknown_volume_succeeds"),
    (WipeDoesNotFreeTheSpace, "a_deleted_disk_is_wiped_in_steps"),
    (WipeProgressIsLostAtRestart, "a_deleted_disk_is_wiped_in_steps"),
    (WipeIgnoresItsLimit, "a_deleted_disk_is_wiped_in_steps"),
    (WipeErasesOtherDisks, "a_deleted_disk_is_wiped_in_steps"),
    (WipeDeletesForeignDisks, "wipe_by_name_does_not_change_a_foreign_disk"),
    (WipesListsNothing, "a_deleted_disk_is_wiped_in_steps"),
    (
        DeletedDisksHaveTheSameName,
        "a_volume_can_be_created_again_while_its_old_disk_is_wiped",
    ),
]
