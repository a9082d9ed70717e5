# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From Cinder's rows to the access that a target should have. Pure.

A volume's access is a function of its attachments as Cinder has them, of the
connections that Cinder opened without an attachment, and of nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lunshare.cinder import chap_secrets
from lunshare.drivers.errors import DiskBusy, InvalidValue, Misconfigured
from lunshare.drivers.values import Auth, Connector, Mode, iscsi_name
from lunshare.drivers.writers import WritersPolicy

#: The statuses of an attachment in which its host has access. Cinder stores the
#: connector of a reserved one only after the driver's answer.
OPEN = frozenset({"attaching", "attached"})
RESERVED = "reserved"
#: The key in a connector whose host the volume's writers policy kept from writing when
#: it was attached; stored by Cinder as the next one.
LIMIT = "lunshare_mode"
#: The key in a connector that tells the attachments of one host apart. Cinder stores a
#: connector as the driver leaves it (manager._connection_create, 27.0.0 to 29.0.0), and
#: a detach sends what is stored.
CONNECTION = "lunshare_connection"


@dataclass(frozen=True, slots=True)
class AttachmentRow:
    """One row of ``volume_attachment``.

    ``attach_mode`` is None until cinder-api stores it, and the text "null" if the
    client gave none: then the mode in the connector counts, else it is rw. ``auth`` are
    the credentials that its host got when it was attached, from whatever driver.
    """

    id: str
    status: str
    attach_mode: str | None
    connector: Mapping[str, Any] | None
    auth: Auth | None = None
    server: str | None = None

    @property
    def connection(self) -> str:
        """The name of this connection; another one when it is connected again."""
        return str((self.connector or {}).get(CONNECTION) or self.id)

    @property
    def open(self) -> bool:
        """Whether its host has access."""
        return bool(self.connector) and self.status in OPEN

    @property
    def initiator(self) -> str:
        """The iSCSI name of its host; only if it is open."""
        return name_of(self.connector or {})


@dataclass(frozen=True, slots=True)
class VolumeHosts:
    """What Cinder's database says of a volume's hosts.

    ``direct`` are connections without an attachment, by initiator: of cinder-volume
    itself and cinder-backup, and of clients of the actions os-initialize_connection
    and os-terminate_connection. ``readonly`` is the volume's own flag.
    """

    volume_id: str
    provider_auth: str | None = field(repr=False)
    rows: tuple[AttachmentRow, ...] = ()
    direct: Mapping[str, Mode] = field(default_factory=dict)
    readonly: bool = False

    @property
    def reserved(self) -> tuple[AttachmentRow, ...]:
        """The attachments that have no connector yet."""
        return tuple(
            row
            for row in self.rows
            if not row.connector and row.status in (RESERVED, "attaching")
        )

    @property
    def initiators(self) -> frozenset[str]:
        """The hosts that have attachments."""
        return frozenset(row.initiator for row in self.rows if row.open)

    def rows_of(
        self, initiator: str, without: Collection[str] = ()
    ) -> tuple[AttachmentRow, ...]:
        """Return the attachments of a host that want access.

        ``without``: connections that do not count.
        """
        return tuple(
            row
            for row in self.rows
            if row.open and row.connection not in without and row.initiator == initiator
        )

    def without_direct(self, initiators: Collection[str]) -> VolumeHosts:
        """Return the hosts without the direct connections of these."""
        direct = {key: self.direct[key] for key in self.direct if key not in initiators}
        return replace(self, direct=direct)

    def direct_without_name(self) -> tuple[str, ...]:
        """Return the direct connection that a detach without a connector ends.

        None while the volume has attachments: then it is about one of those, and a
        backup or a client of os-initialize_connection keeps its own.

        :raises DiskBusy: there are several, and nothing says which.
        """
        if any(row.open for row in self.rows):
            return ()
        if len(self.direct) > 1:
            hosts = ", ".join(sorted(self.direct))
            raise DiskBusy(
                self.volume_id,
                f"{hosts} have connections without an attachment: name one of them by"
                " the connector of os-terminate_connection",
            )
        return tuple(self.direct)

    def rows_ending(
        self, initiator: str, sent: Mapping[str, Any]
    ) -> tuple[AttachmentRow, ...]:
        """Return the attachments of which a detach with this connector ends one.

        Several, if it is not known which: the connector is a client's own, or another
        driver has attached the host.
        """
        named, rows = sent.get(CONNECTION), self.rows_of(initiator)
        return tuple(row for row in rows if named in (None, row.connection))


def wanted(hosts: VolumeHosts) -> dict[str, Connector]:
    """Return every access that the target should have, by initiator."""
    names = hosts.initiators | set(hosts.direct)
    accesses = (of_host(hosts, name) for name in sorted(names))
    return {access.initiator: access for access in accesses if access is not None}


def of_host(
    hosts: VolumeHosts, initiator: str, without: Collection[str] = ()
) -> Connector | None:
    """Return the access that a host should have, or None.

    A host has one ACL and one write-protect bit: the widest mode of what it has.
    ``without``: connections that do not count.
    """
    rows = hosts.rows_of(initiator, without)
    modes = [mode_of(row) for row in rows]
    if direct := hosts.direct.get(initiator):
        modes.append(direct)
    if not modes:
        return None
    mode = Mode.RW if Mode.RW in modes else Mode.RO
    return connector(hosts, initiator, mode, rows[0].id if rows else "")


def connector(
    hosts: VolumeHosts, initiator: str, mode: Mode, attachment_id: str
) -> Connector:
    """Return an access of a host. It keeps credentials of an earlier answer."""
    secrets = (row.auth for row in hosts.rows_of(initiator) if row.auth)
    auth = next(secrets, None) or chap_secrets.of_host(hosts.provider_auth, initiator)
    return Connector(initiator, mode, attachment_id, auth)


def without_secret(accesses: Iterable[Connector]) -> list[str]:
    """Return the initiators for which CHAP would be switched off."""
    return [access.initiator for access in accesses if access.auth is None]


def no_secret(volume_id: str, initiators: Iterable[str]) -> Misconfigured:
    """Return the error of a target that asks these hosts for a secret."""
    return Misconfigured(
        f"volume {volume_id}: Cinder's database has no CHAP secret of"
        f" {', '.join(initiators)}",
        "delete the attachment of that host, and attach it again",
    )


def mode_of(row: AttachmentRow) -> Mode:
    """Return the mode of an attachment; read-only until cinder-api has stored one."""
    if (row.connector or {}).get(LIMIT) == Mode.RO:
        return Mode.RO
    if row.attach_mode == "null":
        return asked_mode(row.connector or {}) or Mode.RW
    return Mode.RW if row.attach_mode == Mode.RW else Mode.RO


def may_write(
    policy: WritersPolicy | None,
    hosts: VolumeHosts,
    sent: Mapping[str, Any],
    owners: Collection[AttachmentRow],
    opening: Collection[str],
) -> bool:
    """Whether a volume's writers policy lets the host with this connector write.

    ``owners`` are the attachments of which one is being connected: each of them has to
    be allowed, since Cinder does not say which it is. ``opening``: initiators that are
    being given access, and may have it rw when Cinder has stored their mode.
    """
    if policy is None:
        return True
    initiator, host = name_of(sent), sent.get("host")
    servers = {row.server for row in owners} or {None}
    if not all(policy.names(server, host, initiator) for server in servers):
        return False
    if policy.most is None:
        return True
    ids = {row.id for row in owners}
    writing = {initiator for initiator, mode in hosts.direct.items() if mode == Mode.RW}
    for row in hosts.rows:
        if row.id not in ids and row.open and mode_of(row) is Mode.RW:
            writing.add(row.server or row.initiator)
    mine = {server or initiator for server in servers}
    return len(writing | {*opening} | mine) <= policy.most


def asked_mode(sent: Mapping[str, Any]) -> Mode | None:
    """Return the mode in a connector.

    cinder-volume puts the mode of the attachment there before it calls the driver. It
    puts None if cinder-api has not stored one yet, which is so when a client creates an
    attachment and connects it in one request. Without the key, the mode is rw.

    :raises InvalidValue: it is neither ro nor rw.
    """
    mode = sent.get("mode", Mode.RW)
    if mode is not None and mode not in (Mode.RO, Mode.RW):
        raise InvalidValue("connector.mode", mode, "give ro or rw")
    return None if mode is None else Mode(str(mode))


def name_of(sent: Mapping[str, Any]) -> str:
    """Return the iSCSI name of the host that sent a connector.

    A host without iSCSI, which mounts a share itself, gets a name made of its own.

    :raises InvalidValue: it has neither an initiator nor a host.
    """
    initiator, host = sent.get("initiator"), sent.get("host")
    if initiator or not host:
        return iscsi_name(initiator, "connector.initiator")
    digest = hashlib.sha256(str(host).encode()).hexdigest()[:32]
    return f"iqn.2026-11.io.lunshare.host:{digest}"
