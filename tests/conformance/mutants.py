# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fakes that each break one promise. The kit must notice every one of them."""

from __future__ import annotations

from typing import Any

from drivers.base import VolumeDriver
from drivers.errors import NoSpace, UnknownDisk
from drivers.fake import FakeVolumes
from drivers.fake_storage import FakeAcl
from drivers.targets.fake import FakeSession, FakeTarget
from drivers.values import Capacity, Disk, Export, LiveConnector, LiveExport, Mode

# Volumes


class CreateWipesWhatIsThere(FakeVolumes):
    def create(self, volume):
        self.storage.drop(volume.id)
        return super().create(volume)


class CreateRoundsDown(FakeVolumes):
    def create(self, volume):
        return super().create(type(volume)(volume.id, volume.size & ~4095))


class CreateLeavesRubbishInAFullPool(FakeVolumes):
    def create(self, volume):
        try:
            return super().create(volume)
        except NoSpace:
            self.storage.make(volume.id, volume.size).whole = True
            raise


class CreateTakesHalfMadeForWhole(FakeVolumes):
    def create(self, volume):
        if volume.id in self.storage.disks:
            return self._seen(volume.id, self.storage.disks[volume.id])
        return super().create(volume)


class DeleteKeepsTheBytes(FakeVolumes):
    attic: dict[str, Any] = {}

    def delete(self, volume_id):
        self.attic[volume_id] = self.storage.disks.get(volume_id)
        super().delete(volume_id)

    def create(self, volume):
        disk = super().create(volume)
        if old := self.attic.get(volume.id):
            self.storage.disks[volume.id].blocks = old.blocks
        return disk


class DeleteOfTheUnknownFails(FakeVolumes):
    def delete(self, volume_id):
        self.disk(volume_id)
        super().delete(volume_id)


class DeleteIgnoresWhoHasItOpen(FakeVolumes):
    def delete(self, volume_id):
        self.storage.drop(volume_id)


class ExtendLosesTheBytes(FakeVolumes):
    def extend(self, volume):
        self._whole(volume.id).blocks = None
        return super().extend(volume)


class ExtendShrinks(FakeVolumes):
    def extend(self, volume):
        disk = self._whole(volume.id)
        disk.size = min(disk.size, volume.size)
        return super().extend(volume)


class DiskOfTheUnknownIsMadeUp(FakeVolumes):
    def disk(self, volume_id):
        try:
            return super().disk(volume_id)
        except UnknownDisk:
            return Disk(volume_id, "/fake/none", 0)


class DisksAreRememberedNotLookedUp(FakeVolumes):
    mine: dict[str, Disk] | None = None

    def create(self, volume):
        disk = super().create(volume)
        self.mine = {**(self.mine or {}), volume.id: disk}
        return disk

    def disks(self):
        return tuple((self.mine or {}).values())


class DeleteTakesForeignDisksToo(FakeVolumes):
    def delete(self, volume_id):
        super().delete(volume_id)
        self.storage.foreign_disks.clear()


class CapacityCountsNothing(FakeVolumes):
    def capacity(self):
        return Capacity(self._total, self._total, 0, self._thin)


class CheckIsSilent(FakeVolumes):
    def check(self):
        pass


# Targets


class ReadOnlyIsOnlyAWord(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        for acl in self.storage.exports.get(export.volume_id, {}).values():
            acl.mode = Mode.RW
        return done


class AnybodyMayLogIn(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        try:
            return super().login(volume_id, initiator, auth)
        except PermissionError:
            return FakeSession(self.storage, volume_id, FakeAcl("", None))


class CredentialsAreNotAsked(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        acl = self.storage.exports.get(volume_id, {}).get(initiator)
        return super().login(volume_id, initiator, acl.auth if acl else None)


class RemovedHostsStay(FakeTarget):
    def _close(self, acls, wanted, scope):
        return super()._close(acls, wanted, scope & wanted.keys())


class RemovedHostsKeepTheirSessions(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: (acl, acl.sessions) for key, acl in acls.items()}
        done = super()._close(acls, wanted, scope)
        for acl, sessions in kept.values():
            acl.sessions = sessions
        return done


class DemotedHostsKeepTheirSessions(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: (acl, acl.sessions) for key, acl in acls.items()}
        done = super()._close(acls, wanted, scope)
        for key in kept.keys() & wanted.keys():
            kept[key][0].sessions = kept[key][1]
        return done


class EveryChangeBuildsAllAnew(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        if done:
            for acl in self.storage.exports.get(export.volume_id, {}).values():
                acl.sessions = ()
        return done


class ApplyAlwaysSaysChanged(FakeTarget):
    def apply(self, export, only=None):
        return (*super().apply(export, only), "looked at it")


class OnlyIsIgnored(FakeTarget):
    def apply(self, export, only=None):
        return super().apply(export)


class RemoveTwiceFails(FakeTarget):
    def remove(self, volume_id):
        if volume_id not in self.storage.exports:
            raise UnknownDisk(volume_id)
        return super().remove(volume_id)


class RemoveTakesForeignExportsToo(FakeTarget):
    def remove(self, volume_id):
        self.storage.foreign_exports.clear()
        return super().remove(volume_id)


class ObserveSaysWhatWasWished(FakeTarget):
    def observe(self):
        return tuple(
            LiveExport(
                found.volume_id,
                tuple(
                    LiveConnector(c.initiator, Mode.RO, c.attachment_id, c.sessions)
                    for c in found.connectors
                ),
            )
            for found in super().observe()
        )


class IdentityIsMadeAtEachExport(FakeTarget):
    made = 0

    def apply(self, export, only=None):
        type(self).made += 1
        return super().apply(export, only)

    def connection(self, volume, connector):
        info = super().connection(volume, connector)
        return info | {"target_iqn": f"{info['target_iqn']}-{self.made}"}

    def volume_of(self, target_iqn):
        return super().volume_of(target_iqn)[:36]


class AMissingDiskIsExported(FakeTarget):
    def apply(self, export: Export, only=None):
        if export.connectors and export.volume_id not in self.storage.disks:
            self.storage.make(export.volume_id, 4096).whole = True
        return super().apply(export, only)


MUTANTS: list[tuple[type[VolumeDriver | FakeTarget], str]] = [
    (CreateWipesWhatIsThere, "create_again_changes_nothing"),
    (CreateRoundsDown, "create_rounds_an_odd_size_up"),
    (CreateLeavesRubbishInAFullPool, "create_in_a_full_pool_leaves_nothing"),
    (CreateTakesHalfMadeForWhole, "create_finishes_what_was_half_made"),
    (DeleteKeepsTheBytes, "a_later_volume_shows_nothing_of_a_deleted_one"),
    (DeleteOfTheUnknownFails, "delete_of_the_unknown_is_success"),
    (DeleteIgnoresWhoHasItOpen, "delete_refuses_a_disk_that_is_open"),
    (ExtendLosesTheBytes, "extend_keeps_bytes_and_adds_zeros"),
    (ExtendShrinks, "extend_never_shrinks"),
    (DiskOfTheUnknownIsMadeUp, "disk_of_the_unknown_is_refused"),
    (DisksAreRememberedNotLookedUp, "disks_are_those_made_and_no_others"),
    (DeleteTakesForeignDisksToo, "foreign_disks_are_neither_listed_nor_touched"),
    (CapacityCountsNothing, "capacity_counts_what_is_promised"),
    (CheckIsSilent, "check_names_a_missing_pool"),
    (ReadOnlyIsOnlyAWord, "a_read_only_host_reads_and_cannot_write"),
    (AnybodyMayLogIn, "a_host_without_an_attachment_is_refused"),
    (CredentialsAreNotAsked, "each_host_has_credentials_of_its_own"),
    (RemovedHostsStay, "a_host_that_is_removed_is_out_at_once"),
    (RemovedHostsKeepTheirSessions, "every_session_of_a_removed_host_ends"),
    (DemotedHostsKeepTheirSessions, "a_host_made_read_only_loses_write_and_session"),
    (EveryChangeBuildsAllAnew, "a_host_that_is_added_disturbs_nobody"),
    (ApplyAlwaysSaysChanged, "apply_again_changes_nothing"),
    (OnlyIsIgnored, "only_opens_one_and_leaves_the_others"),
    (RemoveTwiceFails, "remove_again_is_success"),
    (RemoveTakesForeignExportsToo, "foreign_exports_are_neither_listed_nor_touched"),
    (ObserveSaysWhatWasWished, "observe_says_what_was_applied"),
    (IdentityIsMadeAtEachExport, "identity_is_the_same_after_remove_and_apply"),
    (AMissingDiskIsExported, "a_missing_disk_opens_nothing"),
]
