# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Target drivers that break a promise about who may do what, and who notices."""

from __future__ import annotations

from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.fake_storage import FakeAcl
from lunshare.drivers.targets.fake import FakeSession, FakeTarget
from lunshare.drivers.values import Export, LiveConnector, LiveExport, Mode


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

    def connection_info(self, volume, connector):
        info = super().connection_info(volume, connector)
        return info | {"target_iqn": f"{info['target_iqn']}-{self.made}"}

    def volume_of(self, target_iqn):
        return super().volume_of(target_iqn)[:36]


class AMissingDiskIsExported(FakeTarget):
    def apply(self, export: Export, only=None):
        if export.connectors and export.volume_id not in self.storage.disks:
            self.storage.create(export.volume_id, 4096).complete = True
        return super().apply(export, only)


class ModesAreTheHostsOwn(FakeTarget):
    def apply(self, export, only=None):
        done = super().apply(export, only)
        for connector in export.connectors:
            for acls in self.storage.exports.values():
                if acl := acls.get(connector.initiator):
                    acl.mode = connector.mode
        return done


class ModesOutliveTheirAttachment(FakeTarget):
    writers: set[str] = set()

    def apply(self, export, only=None):
        done = super().apply(export, only)
        for initiator, acl in self.storage.exports.get(export.volume_id, {}).items():
            if acl.mode is Mode.RW:
                self.writers.add(export.volume_id + initiator)
            elif export.volume_id + initiator in self.writers:
                acl.mode = Mode.RW
        return done


class LogoutEndsEverySession(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        session.__class__ = _LeavesWithAll
        return session


class _LeavesWithAll(FakeSession):
    __slots__ = ()

    def close(self):
        self._acl.sessions = ()


class WritesOfOthersFailMeanwhile(FakeTarget):
    def _close(self, acls, wanted, scope):
        kept = {key: acl.sessions for key, acl in acls.items()}
        for acl in acls.values():
            acl.sessions = ()
        done = super()._close(acls, wanted, scope)
        for key in acls.keys() & wanted.keys():
            acls[key].sessions = kept[key] if done == [] else ()
        return done


class GrowthIsSeenAtTheNextLogin(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        seen = {"size": session.size, "__slots__": ()}
        session.__class__ = type("Remembers", (FakeSession,), seen)
        return session


class GrowthEndsSessions(FakeTarget):
    sizes: dict[str, int] = {}

    def apply(self, export, only=None):
        done = super().apply(export, only)
        if export.disk:
            before = self.sizes.setdefault(export.volume_id, export.disk.size)
            if before != export.disk.size:
                for acl in self.storage.exports[export.volume_id].values():
                    acl.sessions = ()
        return done


class SerialsAreTheBackends(FakeTarget):
    def login(self, volume_id, initiator, auth=None):
        session = super().login(volume_id, initiator, auth)
        seen = {"serial": self.name, "__slots__": ()}
        session.__class__ = type("Same", (FakeSession,), seen)
        return session


class RemoveLeavesTheSessions(FakeTarget):
    def remove(self, volume_id):
        acls = dict(self.storage.exports.get(volume_id, {}))
        kept = {key: acl.sessions for key, acl in acls.items()}
        done = super().remove(volume_id)
        for key, acl in acls.items():
            acl.sessions = kept[key]
        return done


class OpensBeforeItCloses(FakeTarget):
    def apply(self, export, only=None):
        acls = self._acls_of(export) or {}
        if only is None:
            self._open(acls, list(export.connectors))
        return super().apply(export, only)


class BornReadWrite(FakeTarget):
    def _create_acl(self, acls, want):
        born = want.initiator not in acls
        done = super()._create_acl(acls, want)
        if born:
            acls[want.initiator].mode = Mode.RW
            self.failures.at("born")
            acls[want.initiator].mode = Mode.RO
        return done


class KilledApplySaysItIsDone(FakeTarget):
    """The mark is set before the work."""

    marks: dict[str, Export] = {}

    def apply(self, export, only=None):
        if self.marks.get(export.volume_id) == export and only is None:
            return ()
        self.marks[export.volume_id] = export
        return super().apply(export, only)


class RemoveForgetsTheExportFirst(FakeTarget):
    def remove(self, volume_id):
        acls = self.storage.exports.pop(volume_id, None)
        self.failures.at("forgotten")
        for acl in (acls or {}).values():
            acl.sessions = ()
        return () if acls is None else ("removed the export",)


TARGETS = [
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
    (ModesAreTheHostsOwn, "a_host_has_a_mode_for_each_volume"),
    (ModesOutliveTheirAttachment, "a_host_that_comes_back_has_its_new_mode"),
    (LogoutEndsEverySession, "a_host_may_log_in_twice_and_leave_once"),
    (WritesOfOthersFailMeanwhile, "writes_of_others_go_on_while_a_host_is_removed"),
    (
        GrowthIsSeenAtTheNextLogin,
        "every_host_sees_a_disk_grow_and_keeps_its_session",
    ),
    (GrowthEndsSessions, "every_host_sees_a_disk_grow_and_keeps_its_session"),
    (SerialsAreTheBackends, "volumes_have_identities_of_their_own"),
    (RemoveLeavesTheSessions, "remove_ends_every_access"),
    (OpensBeforeItCloses, "a_killed_apply_has_opened_nothing_before_it_closed"),
    (BornReadWrite, "a_killed_apply_gives_no_more_than_is_wanted"),
    (KilledApplySaysItIsDone, "a_killed_apply_is_finished_by_the_next"),
    (RemoveForgetsTheExportFirst, "a_killed_remove_is_finished_by_the_next"),
]
