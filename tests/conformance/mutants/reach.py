# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets whose promises reach only some bytes, some sessions or some volumes."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.targets.fake import FakeSession, FakeTarget
from lunshare.drivers.values import Mode
from tests.conformance.mutants.caught import caught_by

MIB = 1 << 20


class Writing(FakeSession):
    """A session that may write although its access is read-only."""

    __slots__ = ("target",)
    target: Any

    def may_write(self, offset, data):
        raise NotImplementedError

    def write(self, offset, data):
        if self._acl.mode is Mode.RO and self.alive and self.may_write(offset, data):
            self._storage.write(self._volume_id, offset, data)
        else:
            super().write(offset, data)


class LeakyTarget(FakeTarget):
    session: type[Writing] = Writing

    def login(self, volume_id, initiator, auth=None):
        correct = super().login(volume_id, initiator, auth)
        correct.close()
        session = self.session(self.storage, volume_id, correct._acl)
        session.target = self
        return session


class BeyondOneMib(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return offset >= MIB


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyInTheFirstMib(LeakyTarget):
    session = BeyondOneMib


class Large(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return len(data) >= MIB


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyForSmallWrites(LeakyTarget):
    session = Large


class BeyondTheOldEnd(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return offset >= self.target.size_at_apply.get(self._volume_id, 1 << 60)


@caught_by("hosts_share_the_extended_part_of_a_disk")
class ReadOnlyInTheOldPart(LeakyTarget):
    """The write protection was set for the size of that time."""

    session: type[Writing] = BeyondTheOldEnd

    def apply(self, export, only=None):
        sizes = self.size_at_apply
        if disk := self.storage.disks.get(export.volume_id):
            sizes.setdefault(export.volume_id, disk.size)
        return super().apply(export, only)

    @property
    def size_at_apply(self):
        return vars(self.storage).setdefault("size_at_apply", {})


class Grown(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return self.target.size_at_apply.get(self._volume_id, 0) < self.size


@caught_by("hosts_share_the_extended_part_of_a_disk")
class ReadOnlyUntilTheDiskGrows(ReadOnlyInTheOldPart):
    session = Grown


class LastSector(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return offset + len(data) == self.size


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyExceptTheEnd(LeakyTarget):
    session = LastSector


class Second(Writing):
    __slots__ = ()

    def may_write(self, offset, data):
        return self._acl.sessions[0] is not self


@caught_by("a_read_only_host_can_read_and_cannot_write")
class ReadOnlyForTheFirstSession(LeakyTarget):
    session = Second


@caught_by("a_host_has_a_separate_mode_for_each_volume")
class DetachEndsTheHostsOtherSessions(FakeTarget):
    """A host has one session, for all its volumes."""

    def _close(self, acls, wanted, scope):
        closed = [i for i in scope & acls.keys() if i not in wanted]
        changes = super()._close(acls, wanted, scope)
        for others in self.storage.exports.values():
            for initiator in closed:
                if initiator in others:
                    others[initiator].sessions = ()
        return changes
