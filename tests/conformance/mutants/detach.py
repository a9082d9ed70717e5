# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Target drivers that close access too early, or report wrong abilities."""

from __future__ import annotations

from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.errors import DeadlineExceeded
from lunshare.drivers.fake.fake_storage import Gate
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Mode
from tests.conformance.mutants.caught import caught_by


@caught_by("a_write_in_progress_lands_before_its_host_is_removed")
class ClosesBeforeTheWriteLands(FakeTarget):
    def _wait_for_writes(self, acl):
        pass


@caught_by("a_write_in_progress_lands_before_its_host_is_read_only")
class ChangesToReadOnlyBeforeTheWriteLands(FakeTarget):
    """Read-only is set, and the write in progress lands later."""

    def apply(self, export, only=None):
        for connector in export.connectors:
            acl = self.storage.exports.get(export.volume_id, {}).get(
                connector.initiator
            )
            if acl and connector.mode is Mode.RO:
                acl.mode, acl.sessions, acl.writes_in_progress = Mode.RO, (), 0
        return super().apply(export, only)


@caught_by("a_write_in_progress_lands_before_the_export_is_removed")
class RemovesBeforeTheWriteLands(FakeTarget):
    def remove(self, volume_id):
        for acl in self.storage.exports.get(volume_id, {}).values():
            acl.writes_in_progress = 0
        return super().remove(volume_id)


@caught_by("a_close_that_hangs_fails_and_is_finished_by_a_retry")
class HangingCloseIsReportedAsSuccess(FakeTarget):
    def _wait_for_writes(self, acl):
        try:
            super()._wait_for_writes(acl)
        except DeadlineExceeded:
            acl.writes_in_progress = 0


@caught_by("a_close_that_hangs_fails_and_is_finished_by_a_retry")
class RetryOfAHangingCloseDoesNotWait(FakeTarget):
    """The retry finds nothing open, and reports success."""

    def _wait_for_writes(self, acl):
        try:
            super()._wait_for_writes(acl)
        except DeadlineExceeded:
            acl.writes_in_progress = 0
            raise


@caught_by("a_close_that_hangs_fails_and_is_finished_by_a_retry")
class HangingCloseStopsOtherVolumes(FakeTarget):
    def _wait_for_writes(self, acl):
        if acl.writes_in_progress:
            for volume_id in self.storage.disks:
                self.storage.slow.setdefault(volume_id, Gate())
            self.storage.exports.clear()
        super()._wait_for_writes(acl)


@caught_by("all_sessions_of_a_removed_host_end")
class DeniesFencingAndFences(FakeTarget):
    ABILITIES = TargetAbilities(
        enforces_read_only=True, restricts_access=True, observes=True
    )


@caught_by("a_read_only_host_can_read_and_cannot_write")
class DeniesReadOnlyAndEnforcesIt(FakeTarget):
    ABILITIES = TargetAbilities(fences=True, restricts_access=True, observes=True)


@caught_by("connection_info_has_the_keys_of_os_brick")
class ReportsAWrongProtocol(FakeTarget):
    """Its connection_info is for iSCSI, and its PROTOCOL is NVMe."""

    PROTOCOL = "NVMe-oF"


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyHostsCanWriteUnreported(FakeTarget):
    """It enforces nothing, and does not refuse a read-only host."""

    bound = {"options": {"fake_enforces": False}}

    def _apply_unenforced(self, export):
        return ()
