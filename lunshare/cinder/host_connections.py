# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attaches and detaches hosts: the live target is what Cinder's rows say.

Every change ends in ``Backend.apply`` with the access that the rows want, read under
the volume's lock. A change that concerns one host reads and changes only that host.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from oslo_concurrency import lockutils

from lunshare.cinder import wanted_access
from lunshare.cinder.cinder_rows import CinderRows
from lunshare.cinder.later_rows import LaterRows
from lunshare.cinder.unfinished import DirectOpening, Opening, Unfinished
from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import DiskBusy, Unsupported
from lunshare.drivers.values import GIB, Connector, Mode, Volume
from lunshare.drivers.writers import MAX_WRITERS, WRITERS

LOG = logging.getLogger(__name__)


def driver_volume(volume: Any) -> Volume:
    """Return Cinder's volume as drivers know it; its size is in bytes.

    After a migration, the disk has the name of another id (``_name_id``). Only
    ``exported_volume`` has the type's choice of reservations.
    """
    return Volume(volume.name_id, volume.size * GIB)


def exported_volume(volume: Any) -> Volume:
    """Return Cinder's volume as a target exports it.

    Cinder reads the type's row when it is first asked for, so a detach must not.
    """
    return replace(driver_volume(volume), reservations=_reserves(volume))


def _reserves(volume: Any) -> bool:
    """Whether the volume's type lets its hosts use SCSI reservations."""
    specs = volume.volume_type.extra_specs if volume.volume_type else None
    return (specs or {}).get("lunshare:reservations") == "<is> True"


class HostConnections:
    """The access of hosts to the volumes of one backend."""

    def __init__(self, backend: Backend, rows: CinderRows) -> None:
        self._backend, self._rows = backend, rows
        self._unfinished = Unfinished()
        self._later = LaterRows(
            backend.name, rows, self.locked, self._unfinished, self._apply_host
        )
        self._semaphores = lockutils.Semaphores()
        self._moved: set[str] = set()

    @contextmanager
    def locked(self, volume_id: str) -> Iterator[None]:
        """Lock the disk of that id: operations on it run one after the other.

        One process works for a backend, so no lock file is needed.
        """
        with self._semaphores.get(volume_id):
            yield

    @contextmanager
    def without_hosts(self, volume: Any) -> Iterator[None]:
        """Lock a volume that no host has; no host gets it during the block.

        Cinder has checked its attachments before, but not in the same transaction, and
        not the connections that have no attachment.

        :raises DiskBusy: a host has it, or is about to.
        """
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            if hosts.rows or hosts.direct:
                raise DiskBusy(volume.name_id, "a host has it: detach it first")
            yield

    def has_hosts(self, volume: Any) -> bool:
        """Whether a host has access, or is being given it."""
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            return bool(self._unfinished.of_volume(hosts))

    def provider_location(self, volume: Any) -> str | None:
        """Return where the volume is exported, as Cinder's LVM driver stores it.

        Only that driver reads it, when it gets the volume (back); None without iSCSI.
        """
        if self._backend.target.PROTOCOL != "iSCSI":
            return None
        nobody = Connector("iqn.2026-11.io.lunshare:nobody", Mode.RO, "")
        info = self._backend.connection_info(driver_volume(volume), nobody)
        portals = info.get("target_portals", [info["target_portal"]])
        iqn, lun = info["target_iqn"], info["target_lun"]
        return f"{';'.join(portals)},{iqn} {iqn} {lun}"

    def set_moved(self, volume_id: str, moved: bool) -> None:
        """Refuse new access while the disk is migrated away (``moved``)."""
        (self._moved.add if moved else self._moved.discard)(volume_id)

    def attach(self, volume: Any, sent: MutableMapping[str, Any]) -> dict[str, Any]:
        """Attach the host with this connector; return connection_info.

        It has the form of Cinder's drivers. The connector of an attachment gets the
        name of its connection, which Cinder stores with it.

        :raises Unsupported: the host has an attachment of the other mode.
        :raises DiskBusy: the volume has just migrated to another backend.
        :raises DriverError: the access is closed again.
        """
        initiator = wanted_access.name_of(sent)
        with self.locked(volume.name_id):
            if volume.name_id in self._moved:
                raise DiskBusy(volume.name_id, "it has just migrated: attach it again")
            hosts = self._rows.of_volume(volume)
            if hosts.reserved or hosts.rows_of(initiator):
                return self._attach(volume, hosts, initiator, sent)
            return self._attach_direct(volume, hosts, initiator, sent)

    def detach(self, volume: Any, sent: Mapping[str, Any] | None) -> bool:
        """Detach the host.

        The access stays if another attachment of the host needs it. Without a
        connector, an only attachment loses its access, and of several the one that
        Cinder deletes next: an action os-force_detach does not say which. A volume
        without attachments loses its only direct connection. Returns whether any host
        still has access.

        :raises DiskBusy: it has several of these; nothing is changed.
        :raises DriverError: it may still be open. Cinder keeps the attachment, and so
            does its access.
        """
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            if sent is None:
                hosts = self._detach_any(volume, hosts)
            else:
                hosts = self._detach_host(volume, hosts, sent)
            return bool(self._unfinished.of_volume(hosts))

    def apply(self, volume: Any) -> tuple[str, ...]:
        """Make the volume's export what its rows want; return what changed."""
        with self.locked(volume.name_id):
            return self._apply_rows(volume, self._rows.of_volume(volume))

    def detach_unwanted(self, volume: Any) -> None:
        """Detach every host that no row wants.

        After an action os-detach, a volume without attachments also loses its
        connections that have no attachment.
        """
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            if volume.status == "detaching" and not any(
                row.connector for row in hosts.rows
            ):
                self._rows.forget_direct(volume, hosts.direct)
        self.apply(volume)

    def show_size(self, volume: Any, size: int) -> None:
        """Show a new size in bytes to the hosts that have access.

        The caller has the lock.
        """
        accesses = self._unfinished.of_volume(self._rows.of_volume(volume))
        if accesses:
            extended = replace(exported_volume(volume), size=size)
            self._apply(extended, accesses.values(), set(accesses))

    def _answer(self, volume: Any, access: Connector) -> dict[str, Any]:
        info = self._backend.connection_info(driver_volume(volume), access)
        outside = ("driver_volume_type", "mount_point_base")
        return {
            **{key: info[key] for key in outside if key in info},
            "data": {key: value for key, value in info.items() if key not in outside},
        }

    def _attach(
        self,
        volume: Any,
        hosts: VolumeHosts,
        initiator: str,
        sent: MutableMapping[str, Any],
    ) -> dict[str, Any]:
        """Attach the host of an attachment that Cinder is connecting.

        If it cannot be answered or its row not be followed, it is closed again: Cinder
        stores no connector of it, so nothing else would ever close it.
        """
        opening = self._new_opening(volume, hosts, initiator, sent)
        sent[wanted_access.CONNECTION] = opening.connection
        self._unfinished.start_opening(opening)
        try:
            self._apply_host(volume, hosts, initiator)
            answer = self._answer(volume, opening.access)
            self._later.follow_opening(volume, opening)
        except BaseException:
            self._unfinished.end_opening(opening)
            self._later.apply_or_repeat(volume, hosts, initiator)
            raise
        return answer

    def _limit(
        self,
        volume: Any,
        hosts: VolumeHosts,
        sent: Mapping[str, Any],
        owners: Sequence[AttachmentRow] = (),
    ) -> bool:
        """Whether the volume's writers policy makes this host a reader.

        :raises Unsupported: rw was asked for it.
        """
        policy = self._rows.writers_policy(volume)
        opening = {each.initiator for each in self._unfinished.openings(hosts)}
        opening -= {wanted_access.name_of(sent)}
        if wanted_access.may_write(policy, hosts, sent, owners, opening):
            return False
        if sent.get("mode") == Mode.RW:
            raise _not_a_writer(wanted_access.name_of(sent))
        return True

    def _new_opening(
        self,
        volume: Any,
        hosts: VolumeHosts,
        initiator: str,
        sent: MutableMapping[str, Any],
    ) -> Opening:
        """:raises Unsupported: the host may not have this mode."""
        mode, rows = wanted_access.asked_mode(sent), hosts.rows_of(initiator)
        owners = hosts.reserved or rows
        sent.pop(wanted_access.LIMIT, None)
        if mode is not Mode.RO and self._limit(volume, hosts, sent, owners):
            sent[wanted_access.LIMIT] = str(Mode.RO)
            mode = Mode.RO
        if mode is not None:
            for row in rows:
                _need_same_mode(initiator, wanted_access.mode_of(row), mode, row.id)
            for opening in self._unfinished.openings(hosts, initiator):
                _need_same_mode(initiator, opening.mode, mode, opening.attachment_id)
        attachment_id = owners[0].id if len(owners) == 1 else ""
        # Without a mode yet, it is read-only until cinder-api has stored one.
        access = wanted_access.connector(
            hosts, initiator, mode or Mode.RO, attachment_id
        )
        ids = frozenset(row.id for row in owners)
        name = uuid.uuid4().hex
        return Opening(hosts.volume_id, access, name, ids, hosts.initiators)

    def _attach_direct(
        self, volume: Any, hosts: VolumeHosts, initiator: str, sent: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Attach a host that has no attachment; the database has it first."""
        mode = wanted_access.asked_mode(sent) or Mode.RW
        if "mode" not in sent and hosts.readonly:
            mode = Mode.RO
        if mode is Mode.RW and not _is_filled(volume):
            mode = Mode.RO if self._limit(volume, hosts, sent) else mode
        self._rows.store_direct(volume, initiator, mode)
        opened = replace(hosts, direct={**hosts.direct, initiator: mode})
        access = wanted_access.connector(opened, initiator, mode, "")
        with self._undone(volume, opened, initiator):
            self._apply_host(volume, opened, initiator)
        if initiator in hosts.direct:
            return self._answer(volume, access)
        with self._undone(volume, opened, initiator):
            answer = self._answer(volume, access)
            followed = DirectOpening(initiator, hosts, answer)
            self._later.follow_direct(volume, followed)
        return answer

    @contextmanager
    def _undone(
        self, volume: Any, opened: VolumeHosts, initiator: str
    ) -> Iterator[None]:
        """Close and forget a direct connection if the block fails."""
        try:
            yield
        except BaseException:
            self._later.undo_direct(volume, opened, initiator)
            raise

    def _detach_host(
        self, volume: Any, hosts: VolumeHosts, sent: Mapping[str, Any]
    ) -> VolumeHosts:
        """Detach a host from its attachment or directly; return the other hosts."""
        initiator = wanted_access.name_of(sent)
        rows = hosts.rows_ending(initiator, sent)
        if not rows:
            named = sent.get(wanted_access.CONNECTION)
            self._unfinished.cancel_openings(volume.name_id, initiator, named)
        if initiator in hosts.direct and wanted_access.CONNECTION not in sent:
            with self._forgetting_direct(volume, hosts, [initiator]) as others:
                self._apply_host(volume, others, initiator)
            self._later.follow_deletions(volume, rows)
            return others
        with self._detaching(volume, rows):
            self._apply_host(volume, hosts, initiator)
        return hosts

    def _detach_any(self, volume: Any, hosts: VolumeHosts) -> VolumeHosts:
        """Detach what Cinder deletes without a name; return the other hosts."""
        rows = [row for row in hosts.rows if row.open]
        direct = hosts.direct_without_name()
        if not rows:
            for access in self._unfinished.openings(hosts):
                self._unfinished.cancel_openings(volume.name_id, access.initiator, None)
        with (
            self._forgetting_direct(volume, hosts, direct) as others,
            self._detaching(volume, rows),
        ):
            self._apply_rows(volume, others)
        return others

    @contextmanager
    def _forgetting_direct(
        self, volume: Any, hosts: VolumeHosts, initiators: Collection[str]
    ) -> Iterator[VolumeHosts]:
        """Delete the rows of direct connections; the block closes their access.

        If the block fails, closing is repeated later: no row names them any more.
        """
        self._rows.forget_direct(volume, initiators)
        try:
            yield hosts.without_direct(initiators)
        except BaseException:
            for initiator in initiators:
                self._later.repeat(volume, initiator)
            raise

    @contextmanager
    def _detaching(self, volume: Any, rows: Sequence[AttachmentRow]) -> Iterator[None]:
        """Note the detach of an attachment; the block closes its access.

        If the block fails, Cinder keeps the attachment, and its access is opened again:
        a helper that hung may still close it. Of several attachments, Cinder does not
        say which one it will delete, so its rows are followed.
        """
        if len(rows) != 1:
            yield
            self._later.follow_deletions(volume, rows)
            return
        self._unfinished.start_detach(volume.name_id, rows[0])
        try:
            yield
        except BaseException:
            self._unfinished.cancel_detach(volume.name_id, rows[0])
            self._later.repeat(volume, rows[0].initiator)
            raise
        self._later.follow_detach(volume, rows[0])

    def _apply(
        self,
        volume: Volume,
        accesses: Collection[Connector],
        only: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """Apply these accesses, and those of ``only`` if it is given.

        :raises Misconfigured: a host has no secret, and the target asks for it. Its
            access stays as it is; the other hosts have theirs.
        """
        unknown = wanted_access.without_secret(accesses)
        if not (unknown and self._backend.target.abilities.checks_credentials):
            return self._backend.apply(volume, accesses, only)
        complete = [access for access in accesses if access.initiator not in unknown]
        if complete:
            initiators = {access.initiator for access in complete}
            self._backend.apply(volume, complete, initiators)
        raise wanted_access.no_secret(volume.id, unknown)

    def _apply_host(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        """Make the access of one host what it should be, and read no other."""
        access = self._unfinished.of_host(hosts, initiator)
        if access is None and not self._unfinished.of_volume(hosts):
            changed = self._apply_accesses(volume, ())
        else:
            accesses = [] if access is None else [access]
            changed = self._apply_accesses(volume, accesses, {initiator})
        LOG.info(
            "[%s] access applied: volume=%s initiator=%s mode=%s changed=%s",
            self._backend.name,
            volume.id,
            initiator,
            access.mode if access else "none",
            "; ".join(changed) or "nothing",
        )

    def _apply_rows(self, volume: Any, hosts: VolumeHosts) -> tuple[str, ...]:
        return self._apply_accesses(volume, self._unfinished.of_volume(hosts).values())

    def _apply_accesses(
        self,
        volume: Any,
        accesses: Collection[Connector],
        only: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """Apply accesses to Cinder's volume; its type is read if there are any."""
        wanted = exported_volume(volume) if accesses else driver_volume(volume)
        return self._apply(wanted, accesses, only)


def _is_filled(volume: Any) -> bool:
    """Whether Cinder itself writes the volume's first bytes, and no host has it yet.

    Then the writers policy, which is for hosts, would stop its own copy.
    """
    is_moved_to = str(volume.migration_status or "").startswith("target:")
    return is_moved_to or volume.status in (
        "creating",
        "downloading",
        "restoring-backup",
    )


def _not_a_writer(initiator: str) -> Unsupported:
    return Unsupported(
        f"mode rw for {initiator} by {WRITERS} and {MAX_WRITERS} of the volume and its"
        " type",
        "attach it ro, or change that metadata",
    )


def _need_same_mode(initiator: str, has: Mode, asked: Mode, attachment_id: str) -> None:
    if has is not asked:
        raise Unsupported(
            f"mode {asked} for {initiator}, which has this volume {has} by attachment"
            f" {attachment_id}",
            "one initiator has one write-protect bit: delete the other attachment"
            " first, or use another initiator name",
        )
