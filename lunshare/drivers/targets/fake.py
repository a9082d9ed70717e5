# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A complete target in memory, with initiators that log in, read and write.

It exports disks of ``FakeVolumes`` of the same backend name. It treats hosts as LIO
does: without an ACL a login is refused, and a read-only LUN is write-protected. With
``fake_enforces = False`` it is like a share that hosts mount themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.base import Root, TargetDriver
from lunshare.drivers.drifts import Drift, DriftKind
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed, Unsupported
from lunshare.drivers.fake.fake_storage import Failures, FakeAcl, FakeStorage, storage
from lunshare.drivers.values import (
    Auth,
    Connector,
    Export,
    LiveConnector,
    LiveExport,
    Mode,
    Portal,
    PortalGuard,
    PortalHost,
    Volume,
    iscsi_name,
    require_uuid,
)

_OPTIONS = [
    cfg.StrOpt(
        "target_prefix",
        default="iqn.2010-10.org.openstack:",
        help="Prefix of the names of the targets.",
    ),
    cfg.StrOpt(
        "target_ip_address",
        default="127.0.0.1",
        help="The address that hosts get. No process listens there.",
    ),
    cfg.PortOpt("target_port", default=3260, help="The port that hosts get."),
    cfg.FloatOpt(
        "fake_deadline",
        default=30.0,
        help="Seconds to wait for the writes in progress when an access is closed.",
    ),
    cfg.BoolOpt(
        "fake_enforces",
        default=True,
        help="Whether the target enforces access. If not, any host reads and writes and"
        " no session is ended, as with a share that hosts mount themselves.",
    ),
    cfg.BoolOpt(
        "fake_firewall",
        default=False,
        help="Whether the target notes which addresses may connect. Nothing connects.",
    ),
    cfg.BoolOpt(
        "fake_needs_addresses",
        default=False,
        help="Whether a host must name its address, as with portal_firewall.",
    ),
]


class FakeSession:
    """One host logged in to one volume.

    Errors are those that a program on a host sees: PermissionError for what is not
    allowed, ConnectionError after the target ended the session.
    """

    __slots__ = ("_acl", "_storage", "_volume_id")

    def __init__(self, storage: FakeStorage, volume_id: str, acl: FakeAcl) -> None:
        self._storage, self._volume_id, self._acl = storage, volume_id, acl
        acl.sessions += (self,)

    @property
    def serial(self) -> str:
        """The unit serial number: the volume's id."""
        return self._volume_id

    @property
    def size(self) -> int:
        """The size a host sees now, in bytes."""
        return self._storage.disks[self._volume_id].size

    @property
    def alive(self) -> bool:
        """False after the target or the host ended it."""
        return self in self._acl.sessions

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes at ``offset``."""
        with self._storage.lock:
            self._require_alive()
            return self._storage.read(self._volume_id, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``.

        A write that the target has accepted completes, even if the session ends.
        """
        with self._storage.lock:
            self._require_alive()
            if self._acl.mode is not Mode.RW:
                raise PermissionError("the LUN is write-protected")
            gate = self._storage.slow.get(self._volume_id)
            self._acl.writes_in_progress += 1
        try:
            if gate:
                gate.wait()
            self._storage.write(self._volume_id, offset, data)
        finally:
            with self._storage.write_done:
                self._acl.writes_in_progress -= 1
                self._storage.write_done.notify_all()
        self._require_alive()

    def close(self) -> None:
        """Log out. It may be called twice."""
        with self._storage.lock:
            others = tuple(
                session for session in self._acl.sessions if session is not self
            )
            self._acl.sessions = others

    def _require_alive(self) -> None:
        if not self.alive:
            raise ConnectionError("the target has ended this session")


class FakeTarget(TargetDriver):
    """Exports in memory. ``failures`` can make each step fail or stop."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = _OPTIONS
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities(
        enforces_read_only=True,
        fences=True,
        restricts_access=True,
        checks_credentials=True,
        observes=True,
        compares=True,
        shows_growth=True,
    )

    #: Each apply.* except the first and the last is passed once for each connector,
    #: directly after that step.
    POINTS: ClassVar[tuple[str, ...]] = (
        "check",
        "admit",
        "apply.before",
        "apply.exported",
        "apply.closed",
        "apply.created",
        "apply.opened",
        "apply.after",
        "remove.before",
        "remove.after",
        "observe",
    )

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self.storage = storage(name)
        self.failures = Failures(self.POINTS)
        self._portal = Portal(options["target_ip_address"], options["target_port"])
        self._prefix: str = options["target_prefix"]
        self._enforces: bool = options["fake_enforces"]
        self._deadline: float = options["fake_deadline"]

    @property
    def abilities(self) -> TargetAbilities:
        if self.options["fake_enforces"]:
            return self.ABILITIES
        return TargetAbilities(shows_growth=True)

    def check(self) -> None:
        self.failures.at("check")

    @property
    def guards_portals(self) -> bool:
        return bool(self.options["fake_firewall"])

    def admit(self, address: str, wanted: bool) -> bool:
        self.failures.at("admit")
        with self.storage.lock:
            if self.storage.admitted is None:
                return False
            addresses = self.storage.admitted - {address}
            self.storage.admitted = addresses | {address} if wanted else addresses
        return True

    @property
    def portal_guard(self) -> PortalGuard:
        return PortalGuard("" if self.guards_portals else "fake_firewall is false")

    @property
    def needs_addresses(self) -> bool:
        return bool(self.options["fake_needs_addresses"])

    def admit_all(self, hosts: Collection[PortalHost]) -> tuple[str, ...]:
        if not self.guards_portals:
            return ()
        addresses = {host.address for host in hosts if host.address}
        with self.storage.lock:
            before, self.storage.admitted = self.storage.admitted, addresses
        return ("hosts admitted anew",) if before != self.storage.admitted else ()

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        self.failures.at("apply.before")
        if not self._enforces:
            return self._apply_unenforced(export)
        acls = self._acls_of(export)
        if acls is None:
            return ()
        connectors = {c.initiator: c for c in export.connectors}
        scope = (
            set(acls) | set(connectors) if only is None else set(map(iscsi_name, only))
        )
        changes = [*self._close(acls, connectors, scope)]
        changes += self._open(acls, [c for k, c in connectors.items() if k in scope])
        self.failures.at("apply.after")
        return tuple(changes)

    def remove(self, volume_id: str) -> tuple[str, ...]:
        self.failures.at("remove.before")
        with self.storage.lock:
            acls = self.storage.exports.get(require_uuid(volume_id))
            for acl in (acls or {}).values():
                acl.mode, acl.sessions = Mode.RO, ()
            for acl in (acls or {}).values():
                self._wait_for_writes(acl)
            self.storage.exports.pop(volume_id, None)
        self.failures.at("remove.after")
        return () if acls is None else ("removed the export",)

    def observe(self) -> tuple[LiveExport, ...]:
        self.failures.at("observe")
        with self.storage.lock:
            exports, remains = self.storage.exports, self.storage.remains
            return tuple(
                LiveExport(
                    volume_id,
                    tuple(_live(*item) for item in exports.get(volume_id, {}).items()),
                    volume_id in exports,
                    tuple(remains.get(volume_id, {}).items()),
                    tuple(self.storage.registrations.get(volume_id, ())),
                )
                for volume_id in dict.fromkeys([*exports, *remains])
            )

    def compare(self, export: Export) -> tuple[Drift, ...]:
        drifts = super().compare(export)
        with self.storage.lock:
            acls = self.storage.exports.get(export.volume_id, {})
            others = [
                connector.initiator
                for connector in export.connectors
                if (acl := acls.get(connector.initiator)) and acl.auth != connector.auth
            ]
        what = "{} has other credentials than its attachment"
        return drifts + tuple(
            Drift(DriftKind.CREDENTIAL, what.format(host), host) for host in others
        )

    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        info: dict[str, Any] = {
            "driver_volume_type": "iscsi",
            "target_iqn": self._prefix + volume.name,
            "target_portal": str(self._portal),
            "target_lun": 0,
        }
        if connector.auth and self.options["fake_enforces"]:
            info["auth_method"] = "CHAP"
            info["auth_username"] = connector.auth.username
            info["auth_password"] = connector.auth.password
        return info

    def login(
        self, volume_id: str, initiator: str, auth: Auth | None = None
    ) -> FakeSession:
        """Log a host in.

        :raises PermissionError: it has no access, or other credentials.
        """
        with self.storage.lock:
            acl = self.storage.exports.get(volume_id, {}).get(iscsi_name(initiator))
            if not self._enforces:
                self._require_disk(volume_id)
                acl = FakeAcl("", None)
                acl.mode = Mode.RW
            if acl is None:
                raise PermissionError(f"{initiator} has no access to {volume_id}")
            if acl.auth is not None and acl.auth != auth:
                raise PermissionError(f"{initiator} gave wrong credentials")
            return FakeSession(self.storage, volume_id, acl)

    def volume_of(self, target_iqn: str) -> str:
        """Return the volume id in a target's name from ``connection_info``."""
        return target_iqn.removeprefix(f"{self._prefix}volume-")

    def _apply_unenforced(self, export: Export) -> tuple[str, ...]:
        for connector in export.connectors:
            if connector.mode is Mode.RO:
                raise Unsupported(
                    f"ro for {connector.initiator} by this target", "attach it rw"
                )
        if export.connectors:
            self._require_disk(export.volume_id)
        return ()

    def _require_disk(self, volume_id: str) -> None:
        disk = self.storage.disks.get(volume_id)
        if disk is None or not disk.complete:
            raise TargetFailed(volume_id, "its disk does not exist")

    def _acls_of(self, export: Export) -> dict[str, FakeAcl] | None:
        """Return the volume's live ACLs; None without an export. A host creates one."""
        with self.storage.lock:
            acls = self.storage.exports.get(export.volume_id)
            if not export.connectors:
                return acls
            self._require_disk(export.volume_id)
            if acls is None:
                acls = self.storage.exports[export.volume_id] = {}
        self.failures.at("apply.exported")
        return acls

    def _close(
        self, acls: dict[str, FakeAcl], wanted: dict[str, Connector], scope: set[str]
    ) -> list[str]:
        changes = []
        for initiator in sorted(scope & acls.keys()):
            acl, want = acls[initiator], wanted.get(initiator)
            if want is None:
                changes.append(f"closed {initiator}")
            elif want.mode is Mode.RO and (
                acl.mode is Mode.RW or acl.writes_in_progress
            ):
                changes.append(f"set {initiator} to read-only")
            else:
                continue
            with self.storage.lock:
                acl.mode, acl.sessions = Mode.RO, ()
                self._wait_for_writes(acl)
                if want is None:
                    del acls[initiator]
            self.failures.at("apply.closed")
        return changes

    def _wait_for_writes(self, acl: FakeAcl) -> None:
        """Wait for the writes that were in progress when the session was ended."""
        if not self.storage.write_done.wait_for(
            lambda: not acl.writes_in_progress, self._deadline
        ):
            raise DeadlineExceeded("closing an access", self._deadline)

    def _open(self, acls: dict[str, FakeAcl], wanted: list[Connector]) -> list[str]:
        changes = []
        for want in wanted:
            changes += self._create_acl(acls, want)
        for want in wanted:
            if want.mode is Mode.RW and acls[want.initiator].mode is Mode.RO:
                acls[want.initiator].mode = Mode.RW
                changes.append(f"set {want.initiator} to read-write")
                self.failures.at("apply.opened")
        return changes

    def _create_acl(self, acls: dict[str, FakeAcl], want: Connector) -> list[str]:
        with self.storage.lock:
            acl = acls.get(want.initiator)
            if acl is None:
                acls[want.initiator] = FakeAcl(want.attachment_id, want.auth)
                changes = [f"opened {want.initiator} read-only"]
            elif (acl.attachment_id, acl.auth) == (want.attachment_id, want.auth):
                return []
            else:
                acl.attachment_id, acl.auth = want.attachment_id, want.auth
                changes = [f"updated credentials or attachment id of {want.initiator}"]
        self.failures.at("apply.created")
        return changes


def _live(initiator: str, acl: FakeAcl) -> LiveConnector:
    return LiveConnector(initiator, acl.mode, acl.attachment_id, len(acl.sessions))
