# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Target drivers that break a promise about access and sessions."""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers import drifts
from lunshare.drivers.drifts import Drift, DriftKind
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.fake.fake_storage import FakeAcl
from lunshare.drivers.targets.fake import FakeSession, FakeTarget
from lunshare.drivers.values import Export, LiveConnector, LiveExport, Mode
from tests.conformance.mutants.caught import caught_by


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyIsNotEnforced(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        for acl in self.storage.exports.get(export.volume_id, {}).values():
            acl.mode = Mode.RW
        return done


@caught_by("a_host_without_an_attachment_cannot_log_in")
class AnyHostCanLogIn(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        try:
            return super().login(volume_id, initiator, auth)
        except PermissionError:
            return FakeSession(self.storage, volume_id, FakeAcl("", None))


@caught_by("each_host_has_its_own_credentials")
class CredentialsAreNotChecked(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        acl = self.storage.exports.get(volume_id, {}).get(initiator)
        return super().login(volume_id, initiator, acl.auth if acl else None)


@caught_by("a_removed_host_loses_access_at_once")
class RemovedHostsKeepAccess(FakeTarget):
    def _close(self, acls, wanted, scope):
        return super()._close(acls, wanted, scope & wanted.keys())


@caught_by("all_sessions_of_a_removed_host_end")
class RemovedHostsKeepTheirSessions(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: (acl, acl.sessions) for key, acl in acls.items()}
        done = super()._close(acls, wanted, scope)
        for acl, sessions in kept.values():
            acl.sessions = sessions
        return done


@caught_by("a_host_changed_to_read_only_loses_write_and_session")
class DemotedHostsKeepTheirSessions(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: (acl, acl.sessions) for key, acl in acls.items()}
        done = super()._close(acls, wanted, scope)
        for key in kept.keys() & wanted.keys():
            kept[key][0].sessions = kept[key][1]
        return done


@caught_by("adding_a_host_leaves_other_sessions_alive")
class EveryChangeEndsAllSessions(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        if done:
            for acl in self.storage.exports.get(export.volume_id, {}).values():
                acl.sessions = ()
        return done


@caught_by("a_retried_apply_changes_nothing")
class ApplyAlwaysReportsAChange(FakeTarget):
    def apply(self, export, only=None):
        return (*super().apply(export, only), "read it")


@caught_by("apply_with_only_opens_one_host_and_leaves_the_others")
class OnlyIsIgnored(FakeTarget):
    def apply(self, export, only=None):
        return super().apply(export)


@caught_by("a_retried_remove_succeeds")
class RetriedRemoveFails(FakeTarget):
    def remove(self, volume_id):
        if volume_id not in self.storage.exports:
            raise UnknownDisk(volume_id)
        return super().remove(volume_id)


@caught_by("foreign_exports_are_not_listed_or_changed")
class RemoveDeletesForeignExports(FakeTarget):
    def remove(self, volume_id):
        self.storage.foreign_exports.clear()
        return super().remove(volume_id)


@caught_by("observe_returns_what_was_applied")
class ObserveReportsWrongModes(FakeTarget):
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


@caught_by("identity_does_not_change_after_remove_and_apply")
class IdentityChangesAtEachExport(FakeTarget):
    made = 0

    def apply(self, export, only=None):
        type(self).made += 1
        return super().apply(export, only)

    def connection_info(self, volume, connector):
        info = super().connection_info(volume, connector)
        return info | {"target_iqn": f"{info['target_iqn']}-{self.made}"}

    def volume_of(self, target_iqn):
        return super().volume_of(target_iqn)[:36]


@caught_by("apply_with_a_missing_disk_opens_nothing")
class AMissingDiskIsExported(FakeTarget):
    def apply(self, export: Export, only=None):
        if export.connectors and export.volume_id not in self.storage.disks:
            self.storage.create(export.volume_id, 4096).complete = True
        return super().apply(export, only)


@caught_by("a_host_has_a_separate_mode_for_each_volume")
class ModeOfAHostIsTheSameForAllVolumes(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        for connector in export.connectors:
            for acls in self.storage.exports.values():
                if acl := acls.get(connector.initiator):
                    acl.mode = connector.mode
        return done


@caught_by("a_host_that_is_attached_again_has_its_new_mode")
class ModesSurviveTheirAttachment(FakeTarget):
    writers: set[str] = set()

    def apply(self, export, only=None):
        done = super().apply(export, only)
        for initiator, acl in self.storage.exports.get(export.volume_id, {}).items():
            if acl.mode is Mode.RW:
                self.writers.add(export.volume_id + initiator)
            elif export.volume_id + initiator in self.writers:
                acl.mode = Mode.RW
        return done


@caught_by("a_host_can_end_one_of_two_sessions")
class LogoutEndsAllSessions(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        session.__class__ = _ClosesAllSessions
        return session


class _ClosesAllSessions(FakeSession):
    __slots__ = ()

    def close(self):
        self._acl.sessions = ()


@caught_by("other_hosts_can_write_while_a_host_is_removed")
class WritesOfOtherHostsFail(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: acl.sessions for key, acl in acls.items()}
        for acl in acls.values():
            acl.sessions = ()
        done = super()._close(acls, wanted, scope)
        for key in acls.keys() & wanted.keys():
            acls[key].sessions = kept[key] if done == [] else ()
        return done


@caught_by("hosts_see_an_extended_disk_and_their_sessions_stay_alive")
class NewSizeIsSeenAtTheNextLogin(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        seen = {"size": session.size, "__slots__": ()}
        session.__class__ = type("Remembers", (FakeSession,), seen)
        return session


@caught_by("hosts_see_an_extended_disk_and_their_sessions_stay_alive")
class ExtendEndsSessions(FakeTarget):
    sizes: dict[str, int] = {}

    def apply(self, export, only=None):
        done = super().apply(export, only)
        if export.disk:
            before = self.sizes.setdefault(export.volume_id, export.disk.size)
            if before != export.disk.size:
                for acl in self.storage.exports[export.volume_id].values():
                    acl.sessions = ()
        return done


@caught_by("each_volume_has_its_own_identity")
class VolumesHaveTheSameSerial(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        seen = {"serial": self.name, "__slots__": ()}
        session.__class__ = type("Same", (FakeSession,), seen)
        return session


@caught_by("remove_ends_all_access")
class RemoveDoesNotEndSessions(FakeTarget):
    def remove(self, volume_id):
        acls = dict(self.storage.exports.get(volume_id, {}))
        kept = {key: acl.sessions for key, acl in acls.items()}
        done = super().remove(volume_id)
        for key, acl in acls.items():
            acl.sessions = kept[key]
        return done


@caught_by("a_killed_apply_closes_access_before_it_opens_access")
class OpensBeforeItCloses(FakeTarget):
    def apply(self, export, only=None):
        acls = self._acls_of(export) or {}
        if only is None:
            self._open(acls, list(export.connectors))
        return super().apply(export, only)


@caught_by("a_killed_apply_gives_no_more_access_than_wanted")
class NewAccessIsReadWriteFirst(FakeTarget):
    def _create_acl(self, acls, want):
        is_new = want.initiator not in acls
        done = super()._create_acl(acls, want)
        if is_new:
            acls[want.initiator].mode = Mode.RW
            self.failures.at("created")
            acls[want.initiator].mode = Mode.RO
        return done


@caught_by("a_killed_apply_is_finished_by_a_retry")
class KilledApplyIsReportedAsDone(FakeTarget):
    """It marks the work as done before it does it."""

    marks: dict[str, Export] = {}

    def apply(self, export, only=None):
        if self.marks.get(export.volume_id) == export and only is None:
            return ()
        self.marks[export.volume_id] = export
        return super().apply(export, only)


@caught_by("a_killed_remove_is_finished_by_a_retry")
class RemoveDeletesTheExportFirst(FakeTarget):
    def remove(self, volume_id):
        acls = self.storage.exports.pop(volume_id, None)
        self.failures.at("forgotten")
        for acl in (acls or {}).values():
            acl.sessions = ()
        return () if acls is None else ("removed the export",)


@caught_by("a_host_that_is_not_wanted_is_found_and_keeps_its_access")
class DifferencesAreRepaired(FakeTarget):
    def compare(self, export):
        found = super().compare(export)
        if self.abilities.observes and found:
            self.apply(export)
        return found


@caught_by("other_credentials_are_found_and_not_shown")
class OtherSecretsAreNotFound(FakeTarget):
    def compare(self, export):
        return tuple(drifts.of_accesses(export, self.observe_volume(export.volume_id)))


@caught_by("other_credentials_are_found_and_not_shown")
class SecretsAreShown(FakeTarget):
    def compare(self, export):
        auth = export.connectors[0].auth
        return tuple(
            replace(drift, what=f"{drift.what}: {auth and auth.password}")
            if drift.kind is DriftKind.CREDENTIAL
            else drift
            for drift in super().compare(export)
        )


@caught_by("a_host_that_is_not_wanted_is_found_and_keeps_its_access")
class ExtraHostsAreNotFound(FakeTarget):
    def compare(self, export):
        hosts = {connector.initiator for connector in export.connectors}
        return tuple(d for d in super().compare(export) if d.initiator in hosts)


@caught_by("a_wanted_host_without_access_is_found")
class MissingHostsAreNotFound(FakeTarget):
    def compare(self, export):
        found = super().compare(export)
        return tuple(d for d in found if d.kind is not DriftKind.NARROWER)


@caught_by("another_mode_is_found_by_what_it_allows")
class EachModeThatDiffersIsWider(FakeTarget):
    def compare(self, export):
        return tuple(
            replace(drift, kind=DriftKind.WIDER) for drift in super().compare(export)
        )


@caught_by("what_was_applied_does_not_differ")
class EveryHostDiffers(FakeTarget):
    def compare(self, export):
        hosts = [connector.initiator for connector in export.connectors]
        return tuple(Drift(DriftKind.ATTRIBUTE, "it differs", host) for host in hosts)
