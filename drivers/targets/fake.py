# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A complete target in memory, with initiators that log in, read and write.

It exports disks of ``FakeVolumes`` of the same backend name, and answers hosts
as LIO does: refused without an ACL, write-protected where read-only. With
``fake_enforces = False`` it is as a share that hosts mount by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.base import Root, TargetDriver
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed, Unsupported
from lunshare.drivers.fake_storage import Failures, FakeAcl, FakeStorage, storage
from lunshare.drivers.values import (
    Auth,
    Connector,
    Export,
    LiveConnector,
    LiveExport,
    Mode,
    Portal,
    Volume,
    iscsi_name,
    volume_uuid,
)

_OPTIONS = [
    cfg.StrOpt(
        "target_prefix",
        default="iqn.2010-10.org.openstack:",
        help="What the name of every target begins with.",
    ),
    cfg.StrOpt(
        "target_ip_address",
        default="127.0.0.1",
        help="The address that hosts are told; nothing listens there.",
    ),
    cfg.PortOpt("target_port", default=3260, help="The port that hosts are told."),
    cfg.FloatOpt(
        "fake_deadline",
        default=30.0,
        help="Seconds that the closing of an access waits for its writes under way.",
    ),
    cfg.BoolOpt(
        "fake_enforces",
        default=True,
        help="Whether the target stands between hosts and disks. If not, anybody"
        " reads and writes, and no session is ended, as where hosts mount a share.",
    ),
]


class FakeSession:
    """One host logged in to one volume.

    Errors are those a program on a host sees: PermissionError for what is not
    allowed, ConnectionError once the target has ended the session.
    """

    __slots__ = ("_acl", "_storage", "_volume_id")

    def __init__(self, held: FakeStorage, volume_id: str, acl: FakeAcl) -> None:
        self._storage, self._volume_id, self._acl = held, volume_id, acl
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
        """False once the target or the host has ended it."""
        return self in self._acl.sessions

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes at ``offset``."""
        with self._storage.lock:
            self._need_alive()
            return self._storage.read(self._volume_id, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``.

        A write that the target has taken lands, whatever becomes of the session.
        """
        with self._storage.lock:
            self._need_alive()
            if self._acl.mode is not Mode.RW:
                raise PermissionError("the LUN is write-protected")
            gate = self._storage.slow.get(self._volume_id)
            self._acl.landing += 1
        try:
            if gate:
                gate.wait()
            self._storage.write(self._volume_id, offset, data)
        finally:
            with self._storage.landed:
                self._acl.landing -= 1
                self._storage.landed.notify_all()
        self._need_alive()

    def close(self) -> None:
        """Log out; closing twice is fine."""
        with self._storage.lock:
            left = tuple(held for held in self._acl.sessions if held is not self)
            self._acl.sessions = left

    def _need_alive(self) -> None:
        if not self.alive:
            raise ConnectionError("the target has ended this session")


class FakeTarget(TargetDriver):
    """Exports in memory. ``failures`` makes any step fail or stand still."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = _OPTIONS
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities(
        enforces_read_only=True,
        fences=True,
        restricts_access=True,
        checks_credentials=True,
        observes=True,
        shows_growth=True,
    )

    #: Each apply.* but the first and the last is passed once per connector,
    #: right after that step was done to it.
    POINTS: ClassVar[tuple[str, ...]] = (
        "check",
        "apply.before",
        "apply.exported",
        "apply.closed",
        "apply.born",
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

    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        self.failures.at("apply.before")
        if not self._enforces:
            return self._unenforced(export)
        acls = self._exported(export)
        if acls is None:
            return ()
        wanted = {c.initiator: c for c in export.connectors}
        scope = set(acls) | set(wanted) if only is None else set(map(iscsi_name, only))
        done = [*self._close(acls, wanted, scope)]
        done += self._open(acls, [c for k, c in wanted.items() if k in scope])
        self.failures.at("apply.after")
        return tuple(done)

    def remove(self, volume_id: str) -> tuple[str, ...]:
        self.failures.at("remove.before")
        with self.storage.lock:
            acls = self.storage.exports.get(volume_uuid(volume_id))
            for acl in (acls or {}).values():
                acl.mode, acl.sessions = Mode.RO, ()
            for acl in (acls or {}).values():
                self._need_landed(acl)
            self.storage.exports.pop(volume_id, None)
        self.failures.at("remove.after")
        return () if acls is None else ("removed the export",)

    def observe(self) -> tuple[LiveExport, ...]:
        self.failures.at("observe")
        with self.storage.lock:
            return tuple(
                LiveExport(volume_id, tuple(_live(*item) for item in acls.items()))
                for volume_id, acls in self.storage.exports.items()
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
                self._need_disk(volume_id)
                acl = FakeAcl("", None)
                acl.mode = Mode.RW
            if acl is None:
                raise PermissionError(f"{initiator} has no access to {volume_id}")
            if acl.auth is not None and acl.auth != auth:
                raise PermissionError(f"{initiator} gave wrong credentials")
            return FakeSession(self.storage, volume_id, acl)

    def volume_of(self, target_iqn: str) -> str:
        """The volume id in a target's name, as ``connection_info`` gave it."""
        return target_iqn.removeprefix(f"{self._prefix}volume-")

    def _unenforced(self, export: Export) -> tuple[str, ...]:
        for connector in export.connectors:
            if connector.mode is Mode.RO:
                raise Unsupported(
                    f"ro for {connector.initiator} by this target", "attach it rw"
                )
        if export.connectors:
            self._need_disk(export.volume_id)
        return ()

    def _need_disk(self, volume_id: str) -> None:
        disk = self.storage.disks.get(volume_id)
        if disk is None or not disk.whole:
            raise TargetFailed(volume_id, "its disk is not there")

    def _exported(self, export: Export) -> dict[str, FakeAcl] | None:
        """The live ACLs of the volume; made for a first host, None without one."""
        with self.storage.lock:
            acls = self.storage.exports.get(export.volume_id)
            if not export.connectors:
                return acls
            self._need_disk(export.volume_id)
            if acls is None:
                acls = self.storage.exports[export.volume_id] = {}
        self.failures.at("apply.exported")
        return acls

    def _close(
        self, acls: dict[str, FakeAcl], wanted: dict[str, Connector], scope: set[str]
    ) -> list[str]:
        done = []
        for initiator in sorted(scope & acls.keys()):
            acl, want = acls[initiator], wanted.get(initiator)
            if want is None:
                done.append(f"closed {initiator}")
            elif want.mode is Mode.RO and (acl.mode is Mode.RW or acl.landing):
                done.append(f"made {initiator} read-only")
            else:
                continue
            with self.storage.lock:
                acl.mode, acl.sessions = Mode.RO, ()
                self._need_landed(acl)
                if want is None:
                    del acls[initiator]
            self.failures.at("apply.closed")
        return done

    def _need_landed(self, acl: FakeAcl) -> None:
        """Wait for the writes that were under way when the session was ended."""
        if not self.storage.landed.wait_for(lambda: not acl.landing, self._deadline):
            raise DeadlineExceeded("the closing of an access", self._deadline)

    def _open(self, acls: dict[str, FakeAcl], wanted: list[Connector]) -> list[str]:
        done = []
        for want in wanted:
            done += self._born(acls, want)
        for want in wanted:
            if want.mode is Mode.RW and acls[want.initiator].mode is Mode.RO:
                acls[want.initiator].mode = Mode.RW
                done.append(f"made {want.initiator} read-write")
                self.failures.at("apply.opened")
        return done

    def _born(self, acls: dict[str, FakeAcl], want: Connector) -> list[str]:
        with self.storage.lock:
            acl = acls.get(want.initiator)
            if acl is None:
                acls[want.initiator] = FakeAcl(want.attachment_id, want.auth)
                done = [f"let {want.initiator} read"]
            elif (acl.attachment_id, acl.auth) == (want.attachment_id, want.auth):
                return []
            else:
                acl.attachment_id, acl.auth = want.attachment_id, want.auth
                done = [f"renewed the credentials or the mark of {want.initiator}"]
        self.failures.at("apply.born")
        return done


def _live(initiator: str, acl: FakeAcl) -> LiveConnector:
    return LiveConnector(initiator, acl.mode, acl.attachment_id, len(acl.sessions))
