# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Broken fakes by a third author who had not seen the kit, and which it missed then.

Of thirty it noticed nineteen.
"""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.drifts import DriftKind
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import FakeDisk
from lunshare.drivers.targets.fake import FakeSession, FakeTarget
from lunshare.drivers.values import iscsi_name
from tests.conformance.mutants.caught import caught_by


class SessionToDisk(FakeSession):
    """It reads and writes a disk that was opened earlier."""

    __slots__ = ("disk",)
    disk: FakeDisk

    def read(self, offset, length):
        self._require_alive()
        return self.disk.read(offset, length)

    def write(self, offset, data):
        self.disk.write(offset, data)


class SessionOfOneGrowth(FakeSession):
    """It sees a disk grow once."""

    __slots__ = ("sizes",)
    sizes: list[int]

    @property
    def size(self):
        size = super().size
        if size not in self.sizes[:2]:
            self.sizes.append(size)
        return self.sizes[:2][-1]


class OwnSessions(FakeTarget):
    """A target whose sessions are of another class."""

    session_class: type[FakeSession]

    def login(self, volume_id, initiator, auth=None):
        super().login(volume_id, initiator, auth).close()
        acl = self.storage.exports[volume_id][iscsi_name(initiator)]
        return self.session_class(self.storage, volume_id, acl)


@caught_by("a_new_export_has_the_disk_of_now")
class ExportHoldsOldDisk(OwnSessions):
    """The first export of a volume opens its disk, and remove does not close it."""

    session_class = SessionToDisk

    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        disk = self.storage.disks[volume_id]
        opened = vars(self.storage).setdefault("opened", {})
        session.disk = opened.setdefault(volume_id, disk)
        return session


@caught_by("a_new_export_has_the_disk_of_now")
class ExportHoldsDiskBeforeRevert(ExportHoldsOldDisk):
    """It notices a disk that was created again, and not one that was reverted."""

    def login(self, volume_id, initiator, auth=None):
        if volume_id not in vars(self.storage).get("snapshot_origins", ()):
            vars(self.storage).get("opened", {}).pop(volume_id, None)
        return super().login(volume_id, initiator, auth)

    def remove(self, volume_id):
        if self.storage.snapshots:
            vars(self.storage).setdefault("snapshot_origins", set()).add(volume_id)
        return super().remove(volume_id)


@caught_by("hosts_see_an_extended_disk_and_their_sessions_stay_alive")
class SecondGrowthIsHidden(OwnSessions):
    """A session that has seen its disk grow does not see it again."""

    session_class = SessionOfOneGrowth

    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        session.sizes = [self.storage.disks[volume_id].size]
        return session


@caught_by("apply_with_only_opens_and_closes_several_hosts")
class OnlyIsOne(FakeTarget):
    """Of the hosts in ``only`` it considers the first."""

    def apply(self, export, only=None):
        return super().apply(export, sorted(only)[:1] if only else only)


@caught_by("new_credentials_apply_at_the_next_login")
class CredentialsStay(FakeTarget):
    """An access that has credentials does not lose them."""

    def _create_acl(self, acls, want):
        acl = acls.get(want.initiator)
        kept = acl and acl.auth and not want.auth
        return super()._create_acl(acls, replace(want, auth=acl.auth) if kept else want)


@caught_by("other_credentials_are_found_and_not_shown")
class CompareOnlyWantedCredentials(FakeTarget):
    """It compares the credentials of hosts that should have some."""

    def compare(self, export):
        none = {c.initiator for c in export.connectors if c.auth is None}
        return tuple(
            drift
            for drift in super().compare(export)
            if drift.kind is not DriftKind.CREDENTIAL or drift.initiator not in none
        )


@caught_by("observe_returns_what_was_applied")
class ObservesOnePage(FakeTarget):
    """It reads the first page of hosts from its storage."""

    def observe(self):
        live = super().observe()
        return tuple(
            replace(export, connectors=export.connectors[:32]) for export in live
        )


@caught_by("extend_preserves_bytes_and_adds_zeros")
class ExtendClearsLastMib(FakeVolumes):
    """It zeroes what it adds in steps of a MiB, from the start of the last one."""

    def extend(self, volume):
        old = self.disk(volume.id).size
        grown = super().extend(volume)
        start = old // MIB * MIB
        if grown.size > old > start:
            self.storage.write(volume.id, start, bytes(old - start))
        return grown


@caught_by("fill_copies_all_bytes")
class FillEndsWithAStep(FakeVolumes):
    """The last step is a whole MiB, also behind the source's end."""

    def fill(self, volume, source):
        super().fill(volume, source)
        end = min(-(-source.size // MIB) * MIB, self.disk(volume.id).size)
        self.storage.write(volume.id, source.size, b"x" * (end - source.size))


@caught_by("a_volume_from_a_snapshot_is_independent")
class CopiesShareBlocks(FakeVolumes):
    """A later copy of a snapshot uses the blocks of the first one."""

    def create_from(self, volume, snapshot):
        new = volume.id not in self.storage.disks
        disk = super().create_from(volume, snapshot)
        copies = vars(self.storage).setdefault("copies", {})
        first = self.storage.disks.get(copies.setdefault(snapshot.id, volume.id))
        copy = self.storage.disks[volume.id]
        if new and first and first.blocks == copy.blocks:
            copy.blocks = first.blocks
        return disk
