# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about manage, unmanage or wipe."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import Manageable, Wipe
from tests.conformance.mutants.caught import caught_by


@caught_by("manage_refuses_a_disk_that_is_already_managed")
class ManageAcceptsAManagedDisk(FakeVolumes):
    def manage(self, volume, reference):
        ours = self.storage.disks.pop(reference.removeprefix("volume-"), None)
        if ours is not None:
            self.storage.foreign_disks[reference] = ours
        return super().manage(volume, reference)


@caught_by("manage_refuses_a_disk_that_is_already_managed")
class ManageableListsManagedDisks(FakeVolumes):
    def manageable(self):
        ours = (Manageable(f"volume-{d.volume_id}", d.size) for d in self.disks())
        return (*super().manageable(), *ours)


@caught_by("manageable_lists_a_disk_with_its_size")
class ManageableReportsNoSizes(FakeVolumes):
    def manageable(self):
        return tuple(Manageable(each.reference, 0) for each in super().manageable())


@caught_by("an_unmanaged_volume_can_be_managed_again")
class ManageErasesTheDisk(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        disk.blocks = None
        return disk


@caught_by("manage_of_an_unknown_reference_fails")
class ManageAcceptsAnyReference(FakeVolumes):
    def manage(self, volume, reference):
        if reference not in self.storage.foreign_disks:
            return self.create(volume)
        return super().manage(volume, reference)


@caught_by("an_unmanaged_volume_can_be_managed_again")
class UnmanageDeletesTheDisk(FakeVolumes):
    def unmanage(self, volume_id):
        self.delete(volume_id)


@caught_by("unmanage_refuses_an_open_disk")
class UnmanageIgnoresOpenDisks(FakeVolumes):
    def unmanage(self, volume_id):
        self.storage.open.clear()
        super().unmanage(volume_id)


@caught_by("unmanage_of_an_unknown_volume_succeeds")
class UnmanageOfAnUnknownVolumeFails(FakeVolumes):
    def unmanage(self, volume_id):
        self.disk(volume_id)
        super().unmanage(volume_id)


class Wiping(FakeVolumes):
    """A correct driver that wipes; its subclasses are broken."""

    bound = {"options": {"fake_thin": False, "fake_capacity_gb": 1, "fake_wipe": True}}


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipeDoesNotFreeTheSpace(Wiping):
    def wipe(self, name, most):
        left = super().wipe(name, most)
        if left is None:
            self.storage.provisioned += 4096
        return left


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipeProgressIsLostAtRestart(Wiping):
    """It forgets at a restart how much was wiped."""

    def __init__(self, *given):
        super().__init__(*given)
        for disk in self.storage.deleted.values():
            disk.wiped = 0


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipeIgnoresItsLimit(Wiping):
    def wipe(self, name, most):
        return super().wipe(name, 1 << 60)


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipeErasesOtherDisks(Wiping):
    def wipe(self, name, most):
        for disk in self.storage.disks.values():
            disk.blocks = None
        return super().wipe(name, most)


@caught_by("wipe_by_name_does_not_change_a_foreign_disk")
class WipeDeletesForeignDisks(Wiping):
    def wipe(self, name, most):
        self.storage.foreign_disks.pop(name, None)
        return super().wipe(name, most)


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipesListsNothing(Wiping):
    def wipes(self) -> tuple[Wipe, ...]:
        return ()


@caught_by("a_volume_can_be_created_again_while_its_old_disk_is_wiped")
class DeletedDisksHaveTheSameName(Wiping):
    def delete(self, volume_id):
        held: dict[str, Any] = dict(self.storage.deleted)
        super().delete(volume_id)
        for name in self.storage.deleted.keys() - held.keys():
            disk = self.storage.deleted.pop(name)
            self.storage.deleted[f"deleted-{volume_id}"] = disk
