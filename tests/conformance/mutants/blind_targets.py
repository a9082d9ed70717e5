# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Broken targets by an author who had not seen the kit."""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Mode
from tests.conformance.mutants.caught import caught_by


@caught_by("hosts_share_the_extended_part_of_a_disk")
class GrowthOpensWrites(FakeTarget):
    """The LUNs of a disk that grew are mapped again, all read-write."""

    def apply(self, export, only=None):
        changes = super().apply(export, only)
        sizes, size = vars(self.storage).setdefault("sizes", {}), export.disk.size
        if size > sizes.setdefault(export.volume_id, size):
            for acl in self.storage.exports[export.volume_id].values():
                acl.mode = Mode.RW
        return changes


@caught_by("apply_with_only_closes_one_host_and_leaves_the_others")
class ClosesByPrefix(FakeTarget):
    """It closes a host with those whose names begin with its name."""

    def apply(self, export, only=None):
        changes = super().apply(export, only)
        acls = self.storage.exports.get(export.volume_id, {})
        for gone in set(only or ()) - {c.initiator for c in export.connectors}:
            for key in [key for key in acls if key.startswith(gone)]:
                acls.pop(key).sessions = ()
        return changes


@caught_by("remove_leaves_other_volumes_exported")
class RemoveEndsOthers(FakeTarget):
    """It ends the sessions of the same hosts to other volumes."""

    def remove(self, volume_id):
        hosts = set(self.storage.exports.get(volume_id, {}))
        changes = super().remove(volume_id)
        for acls in self.storage.exports.values():
            for key in hosts & acls.keys():
                acls[key].sessions = ()
        return changes


@caught_by("a_host_has_separate_credentials_for_each_volume")
class OneSecretPerHost(FakeTarget):
    """That of its newest volume."""

    def apply(self, export, only=None):
        changes = super().apply(export, only)
        for connector in export.connectors:
            for acls in self.storage.exports.values():
                if connector.initiator in acls:
                    acls[connector.initiator].auth = connector.auth
        return changes


@caught_by("observe_counts_sessions")
class SessionsOfAllVolumes(FakeTarget):
    """It counts those of a host."""

    def observe(self):
        exports = super().observe()
        counts: dict[str, int] = {}
        for export in exports:
            for each in export.connectors:
                number = counts.get(each.initiator, 0) + (each.sessions or 0)
                counts[each.initiator] = number
        return tuple(
            replace(
                export,
                connectors=tuple(
                    replace(each, sessions=counts[each.initiator])
                    for each in export.connectors
                ),
            )
            for export in exports
        )


@caught_by("many_hosts_have_their_own_modes")
class SixteenHosts(FakeTarget):
    """A later host gets the mode of that in its place of the table."""

    def apply(self, export, only=None):
        changes = super().apply(export, only)
        acls = [*self.storage.exports.get(export.volume_id, {}).values()]
        for number, acl in enumerate(acls):
            acl.mode = acls[number % 16].mode
        return changes
