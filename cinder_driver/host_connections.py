# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Opens and closes the access of hosts: the live target is what Cinder's rows say.

Every change ends in ``Backend.apply`` with the access that the rows want, read under
the volume's lock. A change that concerns one host reads and changes only that host.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from oslo_concurrency import lockutils

from lunshare.cinder import wanted_access
from lunshare.cinder.cinder_rows import CinderRows
from lunshare.cinder.unfinished import LATEST, Unfinished
from lunshare.cinder.wanted_access import VolumeHosts
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import DiskBusy, DriverError, Unsupported
from lunshare.drivers.values import GIB, Connector, Mode, Volume

LOG = logging.getLogger(__name__)

# Seconds between two reads of the rows of an access that was opened. cinder-api stores
# them some ms after the driver's answer.
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0


def driver_volume(volume: Any) -> Volume:
    """Return Cinder's volume as drivers know it; its size is in bytes.

    After a migration, the disk has the name of another id (``_name_id``).
    """
    return Volume(volume.name_id, volume.size * GIB)


class HostConnections:
    """The access of hosts to the volumes of one backend."""

    def __init__(self, backend: Backend, rows: CinderRows) -> None:
        self._backend, self._rows = backend, rows
        self._unfinished = Unfinished()
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
        """Lock a volume that no host has, and let none have it in the block.

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
        """Open no access to a disk whose bytes are at another backend, or do again."""
        (self._moved.add if moved else self._moved.discard)(volume_id)

    def open(self, volume: Any, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Open the access of the host with this connector; return connection_info.

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
                access = self._start_opening(hosts, initiator, sent)
                self._open(volume, hosts, initiator)
                self._watch(self._finish_opening, volume, initiator)
            else:
                access = self._open_direct(volume, hosts, initiator, sent)
            return self._backend.connection_info(driver_volume(volume), access)

    def close(self, volume: Any, sent: Mapping[str, Any] | None) -> bool:
        """Close the access of the host; of every host without a connector.

        The access stays if another attachment of the host needs it. Returns whether
        any host still has access.

        :raises DriverError: it may still be open. Cinder keeps the attachment.
        """
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            if sent is None:
                self._unfinished.release_all(hosts)
                self._rows.forget_direct(volume, hosts.direct)
                self._backend.apply(driver_volume(volume), ())
                return False
            initiator = wanted_access.name_of(sent)
            hosts = self._start_closing(volume, hosts, initiator)
            self._apply_host(volume, hosts, initiator)
            return bool(self._unfinished.of_volume(hosts))

    def apply(self, volume: Any) -> tuple[str, ...]:
        """Make the volume's export what its rows want; return what changed."""
        with self.locked(volume.name_id):
            hosts = self._rows.of_volume(volume)
            accesses = self._unfinished.of_volume(hosts).values()
            return self._apply(driver_volume(volume), accesses)

    def leave(self, volume: Any) -> None:
        """Close what no row wants; of a volume without attachments also the rest.

        An action os-detach ends a connection without an attachment, too.
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
            extended = Volume(volume.name_id, size)
            self._apply(extended, accesses.values(), set(accesses))

    def _start_opening(
        self, hosts: VolumeHosts, initiator: str, sent: Mapping[str, Any]
    ) -> Connector:
        """Note the access of an attachment that Cinder is connecting."""
        mode, rows = wanted_access.asked_mode(sent), hosts.rows_of(initiator)
        if hosts.reserved and mode is not None:
            for row in rows:
                _need_same_mode(initiator, row, mode)
        if not hosts.reserved:
            self._unfinished.keep(hosts.volume_id, initiator)
        owners = hosts.reserved or rows
        attachment_id = owners[0].id if len(owners) == 1 else ""
        # Without a mode yet, it is read-only until cinder-api has stored one.
        access = wanted_access.connector(
            hosts, initiator, mode or Mode.RO, attachment_id
        )
        self._unfinished.open(hosts.volume_id, access)
        return access

    def _open(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        try:
            self._apply_host(volume, hosts, initiator)
        except BaseException:
            self._unfinished.opened(hosts.volume_id, initiator)
            self._close_failed(volume, hosts, initiator)
            raise

    def _open_direct(
        self, volume: Any, hosts: VolumeHosts, initiator: str, sent: Mapping[str, Any]
    ) -> Connector:
        """Open a connection that has no attachment; the database has it first."""
        mode = wanted_access.asked_mode(sent) or Mode.RW
        if "mode" not in sent and hosts.readonly:
            mode = Mode.RO
        self._rows.store_direct(volume, initiator, mode)
        opened = replace(hosts, direct={**hosts.direct, initiator: mode})
        try:
            self._apply_host(volume, opened, initiator)
        except BaseException:
            self._rows.forget_direct(volume, [initiator])
            self._close_failed(volume, hosts, initiator)
            raise
        return wanted_access.connector(opened, initiator, mode, "")

    def _start_closing(
        self, volume: Any, hosts: VolumeHosts, initiator: str
    ) -> VolumeHosts:
        """Note what is released; return the hosts without it."""
        self._unfinished.opened(hosts.volume_id, initiator)
        rows = hosts.rows_of(initiator)
        if initiator not in hosts.direct:
            if rows:
                self._unfinished.release(hosts.volume_id, initiator, rows)
            return hosts
        self._rows.forget_direct(volume, [initiator])
        if rows:  # Cinder does not say which of the two ends
            self._watch(self._finish_closing, volume, initiator)
        left = {name: mode for name, mode in hosts.direct.items() if name != initiator}
        return replace(hosts, direct=left)

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
        known = [each for each in accesses if each.initiator not in unknown]
        if known:
            self._backend.apply(volume, known, {each.initiator for each in known})
        raise wanted_access.no_secret(volume.id, unknown)

    def _apply_host(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        """Make the access of one host what it should be, and read no other."""
        access = self._unfinished.of_host(hosts, initiator)
        if access is None and not self._unfinished.of_volume(hosts):
            changed = self._backend.apply(driver_volume(volume), ())
        else:
            accesses = [] if access is None else [access]
            changed = self._apply(driver_volume(volume), accesses, {initiator})
        LOG.info(
            "[%s] access applied: volume=%s initiator=%s mode=%s changed=%s",
            self._backend.name,
            volume.id,
            initiator,
            access.mode if access else "none",
            "; ".join(changed) or "nothing",
        )

    def _close_failed(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        try:
            self._apply_host(volume, hosts, initiator)
        except DriverError as error:
            LOG.error(
                "[%s] cleanup of a failed attach failed; it is tried again:"
                " volume=%s initiator=%s: %s",
                self._backend.name,
                volume.id,
                initiator,
                error,
            )
            self._watch(self._finish_closing, volume, initiator)

    # Rows that Cinder writes later

    def _watch(self, finish: Callable[..., bool], volume: Any, initiator: str) -> None:
        """Call ``finish`` until Cinder has written its rows."""
        threading.Thread(
            target=self._follow, args=(finish, volume, initiator), daemon=True
        ).start()

    def _follow(self, finish: Callable[..., bool], volume: Any, initiator: str) -> None:
        wait, until = _FIRST_WAIT, time.monotonic() + LATEST
        while True:
            time.sleep(wait)
            wait = min(wait * 1.5, _LONGEST_WAIT)
            try:
                with self.locked(volume.name_id):
                    hosts = self._rows.of_volume(volume)
                    if finish(volume, hosts, initiator, time.monotonic() > until):
                        return
            except Exception:
                LOG.exception(
                    "[%s] access not applied; it is tried again: volume=%s"
                    " initiator=%s",
                    self._backend.name,
                    volume.id,
                    initiator,
                )

    def _finish_opening(
        self, volume: Any, hosts: VolumeHosts, initiator: str, last: bool
    ) -> bool:
        """Give a new access the mode that cinder-api has stored; return if it has.

        Without a row until the end, no client has the attachment, and it is closed.
        """
        opening = self._unfinished.opening(hosts.volume_id, initiator)
        rows = hosts.rows_of(initiator)
        known = rows and all(row.attach_mode is not None for row in rows)
        if opening is None:
            return True
        if not known and not last:
            return False
        self._unfinished.opened(hosts.volume_id, initiator)
        if self._unfinished.of_host(hosts, initiator) != opening:
            self._apply_host(volume, hosts, initiator)
        return True

    def _finish_closing(
        self, volume: Any, hosts: VolumeHosts, initiator: str, last: bool
    ) -> bool:
        """Apply a host's access when none of its attachments is left."""
        if hosts.rows_of(initiator) and not last:
            return False
        self._apply_host(volume, hosts, initiator)
        return True


def _need_same_mode(
    initiator: str, row: wanted_access.AttachmentRow, mode: Mode
) -> None:
    if wanted_access.mode_of(row) is not mode:
        raise Unsupported(
            f"mode {mode} for {initiator}, which has this volume"
            f" {wanted_access.mode_of(row)} by attachment {row.id}",
            "one initiator has one write-protect bit: delete the other attachment"
            " first, or use another initiator name",
        )
