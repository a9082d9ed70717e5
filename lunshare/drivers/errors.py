# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of drivers. Each error has fields, and its sentence is made of them."""

from __future__ import annotations

from typing import ClassVar


class DriverError(Exception):
    """Base of all errors of drivers; callers may compare ``code``, which is stable."""

    code = "driver-failed"

    #: The names of its attributes, which are those of its constructor's arguments. They
    #: are sent by name (lunshare.drivers.protocol.messages).
    FIELDS: ClassVar[tuple[str, ...]] = ()


class InvalidValue(DriverError, ValueError):
    """A value does not have its form. Correct the input; a retry does not help."""

    code = "invalid-value"
    FIELDS: ClassVar[tuple[str, ...]] = ("name", "value", "remedy")

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(f"{name} {value!r} is not valid: {remedy}")
        self.name, self.value, self.remedy = name, value, remedy


class Misconfigured(DriverError):
    """An option or the node is wrong. The operator corrects it and restarts."""

    code = "misconfigured"
    FIELDS: ClassVar[tuple[str, ...]] = ("what", "remedy")

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what, self.remedy = what, remedy


class StorageLost(Misconfigured):
    """A part of the pool is lost, and what is asked may be on it. Nothing was changed.

    Never treat it as UnknownDisk or UnknownSnapshot. The same call may be repeated when
    ``check`` has found that part again.
    """

    code = "storage-lost"


class UnknownDisk(DriverError):
    """The backend has no disk for this volume."""

    code = "unknown-disk"
    FIELDS: ClassVar[tuple[str, ...]] = ("volume_id",)

    def __init__(self, volume_id: str) -> None:
        super().__init__(
            f"volume {volume_id} has no disk on this backend: bring its disk back, or"
            " delete its attachments and then the volume"
        )
        self.volume_id = volume_id


class UnknownSnapshot(DriverError):
    """The backend has no such snapshot."""

    code = "unknown-snapshot"
    FIELDS: ClassVar[tuple[str, ...]] = ("snapshot_id",)

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(f"snapshot {snapshot_id} is not on this backend")
        self.snapshot_id = snapshot_id


class LostSnapshot(UnknownSnapshot):
    """The snapshot exists, but its bytes are lost. Delete it; create another."""

    code = "lost-snapshot"
    FIELDS: ClassVar[tuple[str, ...]] = ("snapshot_id", "why")

    def __init__(self, snapshot_id: str, why: str) -> None:
        DriverError.__init__(
            self, f"snapshot {snapshot_id} has lost its bytes: {why}; delete it"
        )
        self.snapshot_id, self.why = snapshot_id, why


class UnknownReference(DriverError):
    """The pool has no disk or snapshot of that name that can be managed."""

    code = "unknown-reference"
    FIELDS: ClassVar[tuple[str, ...]] = ("reference", "why")

    def __init__(self, reference: str, why: str) -> None:
        super().__init__(f"{reference!r} cannot be managed: {why}")
        self.reference, self.why = reference, why


class DiskBusy(DriverError):
    """The disk is open. Stop what uses it, then try again."""

    code = "disk-busy"
    FIELDS: ClassVar[tuple[str, ...]] = ("volume_id", "why")

    def __init__(self, volume_id: str, why: str) -> None:
        super().__init__(f"volume {volume_id} is in use: {why}")
        self.volume_id, self.why = volume_id, why


class NoSpace(DriverError):
    """The pool has too little free space. Nothing was created."""

    code = "no-space"
    FIELDS: ClassVar[tuple[str, ...]] = ("pool", "why")

    def __init__(self, pool: str, why: str) -> None:
        super().__init__(f"pool {pool} has no free space: {why}")
        self.pool, self.why = pool, why


class Unsupported(DriverError):
    """The driver does not support this operation; it has changed nothing."""

    code = "unsupported"
    FIELDS: ClassVar[tuple[str, ...]] = ("what", "remedy")

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not supported: {remedy}")
        self.what, self.remedy = what, remedy


class CommandFailed(DriverError):
    """A command failed. The same call may be repeated."""

    code = "command-failed"
    FIELDS: ClassVar[tuple[str, ...]] = ("argv", "exit_code", "stderr")

    def __init__(self, argv: tuple[str, ...], exit_code: int, stderr: str) -> None:
        program, why = argv[0], stderr.strip()
        super().__init__(f"{program} exited {exit_code}: {why}; {' '.join(argv)}")
        self.argv, self.exit_code, self.stderr = argv, exit_code, stderr


class TargetFailed(DriverError):
    """The target refused the wanted state. It allows at most the wanted access.

    The same call may be repeated; it continues from the live state.
    """

    code = "target-failed"
    FIELDS: ClassVar[tuple[str, ...]] = ("volume_id", "why")

    def __init__(self, volume_id: str, why: str) -> None:
        super().__init__(f"the target of volume {volume_id} refused: {why}")
        self.volume_id, self.why = volume_id, why


class HelperRefused(DriverError):
    """The root helper's rules forbid this request. The caller has a fault."""

    code = "helper-refused"
    FIELDS: ClassVar[tuple[str, ...]] = ("what", "why")

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"the root helper refused {what}: {why}")
        self.what, self.why = what, why


class HelperUnreachable(DriverError):
    """No answer from the root helper's socket. Start its unit, then try again."""

    code = "helper-unreachable"
    FIELDS: ClassVar[tuple[str, ...]] = ("path", "why")

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the root helper does not answer ({why}) at {path}:"
            " systemctl restart lunshare-helper.socket lunshare-helper.service, and see"
            " their journal"
        )
        self.path, self.why = path, why


class HelperBusy(DriverError):
    """The root helper is at its limit; it has started nothing. Try again later."""

    code = "helper-busy"
    FIELDS: ClassVar[tuple[str, ...]] = ("why",)

    def __init__(self, why: str) -> None:
        super().__init__(f"the root helper is busy: {why}; try again later")
        self.why = why


class HelperForbidden(HelperUnreachable):
    """This user may not open the root helper's socket. Nothing was started."""

    code = "helper-forbidden"
    FIELDS: ClassVar[tuple[str, ...]] = ("path", "user")

    def __init__(self, path: str, user: str) -> None:
        DriverError.__init__(
            self,
            f"user {user} may not use the root helper at {path}: name it in --user of"
            " lunshare-helper.service and its group in SocketGroup of"
            " lunshare-helper.socket, then systemctl restart both",
        )
        self.path, self.user = path, user


class HelperVersion(HelperUnreachable):
    """Helper and client speak two protocols. Nothing was started. Restart both.

    The client is lunshared, or cinder-volume with lunshare's driver.
    """

    code = "helper-version"
    FIELDS: ClassVar[tuple[str, ...]] = ("helper", "client")

    def __init__(self, helper: int, client: int) -> None:
        DriverError.__init__(
            self,
            f"the root helper speaks protocol {helper} and its client (lunshared or"
            f" cinder-volume) protocol {client}: install one version of lunshare, then"
            " systemctl restart lunshare-helper.service and that client",
        )
        self.helper, self.client = helper, client


class Interrupted(HelperUnreachable):
    """The root helper ended during this request; the work may still be done.

    The outcome is unknown. Repeat the complete verb, which reads the state first.
    """

    code = "interrupted"


class DeadlineExceeded(DriverError):
    """The kernel or a command did not finish in time; it may still finish.

    The outcome is unknown. Repeat the call later; do not report success, and do not
    report a fence.
    """

    code = "deadline-exceeded"
    FIELDS: ClassVar[tuple[str, ...]] = ("what", "seconds")

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not finish within {seconds:g} seconds")
        self.what, self.seconds = what, seconds


class Stalled(DeadlineExceeded):
    """Work on bytes made no progress for so many seconds, after ``done`` bytes."""

    code = "stalled"
    FIELDS: ClassVar[tuple[str, ...]] = ("what", "seconds", "done")

    def __init__(self, what: str, seconds: float, done: int) -> None:
        DriverError.__init__(
            self, f"{what} made no progress for {seconds:g} seconds, after {done} bytes"
        )
        self.what, self.seconds, self.done = what, seconds, done


class CopyDiffers(DriverError):
    """A copy does not read back as its source. Do not delete the source."""

    code = "copy-differs"
    FIELDS: ClassVar[tuple[str, ...]] = ("target", "why")

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"{target} is not a copy of its source: {why}")
        self.target, self.why = target, why


class ForeignBytes(DriverError):
    """A new disk had bytes of another one. It has another name now; no host gets it."""

    code = "foreign-bytes"
    FIELDS: ClassVar[tuple[str, ...]] = ("volume_id", "disk")

    def __init__(self, volume_id: str, disk: str) -> None:
        super().__init__(
            f"the new disk of volume {volume_id} had bytes of another disk, so it is"
            f" {disk} now: see whose it is ('Thin devices that LVM does not know' in"
            " docs/operations.md), then create the volume again"
        )
        self.volume_id, self.disk = volume_id, disk
