# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of drivers. Each error has fields, and its sentence is made of them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class DriverError(Exception):
    """Base of all errors of drivers; callers may compare ``code``, which is stable.

    A class declares its fields, the arguments of its constructor, and its sentence,
    which has their names in braces.
    """

    code: ClassVar[str] = "driver-failed"
    SENTENCE: ClassVar[str] = ""

    #: The names of its fields. They are sent by name (protocol.messages).
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        kind: Any = dataclasses.dataclass(eq=False, repr=False)(cls)
        if "FIELDS" not in vars(cls):
            cls.FIELDS = tuple(field.name for field in dataclasses.fields(kind))

    def __post_init__(self) -> None:
        super().__init__(self.SENTENCE.format(**vars(self)))


class InvalidValue(DriverError, ValueError):
    """A value does not have its form. Correct the input; a retry does not help."""

    code = "invalid-value"
    SENTENCE = "{name} {value!r} is not valid: {remedy}"
    name: str
    value: object
    remedy: str


class Misconfigured(DriverError):
    """An option or the node is wrong. The operator corrects it and restarts."""

    code = "misconfigured"
    SENTENCE = "{what}: {remedy}"
    what: str
    remedy: str


class StorageLost(Misconfigured):
    """A part of the pool is lost, and what is asked may be on it. Nothing was changed.

    Never treat it as UnknownDisk or UnknownSnapshot. The same call may be repeated when
    ``check`` has found that part again.
    """

    code = "storage-lost"


class UnknownDisk(DriverError):
    """The backend has no disk for this volume."""

    code = "unknown-disk"
    SENTENCE = (
        "volume {volume_id} has no disk on this backend: bring its disk back, or"
        " delete its attachments and then the volume"
    )
    volume_id: str


class UnknownSnapshot(DriverError):
    """The backend has no such snapshot."""

    code = "unknown-snapshot"
    SENTENCE = "snapshot {snapshot_id} is not on this backend"
    snapshot_id: str


class LostSnapshot(UnknownSnapshot):
    """The snapshot exists, but its bytes are lost. Delete it; create another."""

    code = "lost-snapshot"
    SENTENCE = "snapshot {snapshot_id} has lost its bytes: {why}; delete it"
    why: str


class UnknownReference(DriverError):
    """The pool has no disk or snapshot of that name that can be managed."""

    code = "unknown-reference"
    SENTENCE = "{reference!r} cannot be managed: {why}"
    reference: str
    why: str


class DiskBusy(DriverError):
    """The disk is open. Stop what uses it, then try again."""

    code = "disk-busy"
    SENTENCE = "volume {volume_id} is in use: {why}"
    volume_id: str
    why: str


class NoSpace(DriverError):
    """The pool has too little free space. Nothing was created."""

    code = "no-space"
    SENTENCE = "pool {pool} has no free space: {why}"
    pool: str
    why: str


class Unsupported(DriverError):
    """The driver does not support this operation; it has changed nothing."""

    code = "unsupported"
    SENTENCE = "{what} is not supported: {remedy}"
    what: str
    remedy: str


class CommandFailed(DriverError):
    """A command failed. The same call may be repeated."""

    code = "command-failed"
    argv: tuple[str, ...]
    exit_code: int
    stderr: str

    def __post_init__(self) -> None:
        program, why = self.argv[0], self.stderr.strip()
        text = f"{program} exited {self.exit_code}: {why}; {' '.join(self.argv)}"
        Exception.__init__(self, text)


class TargetFailed(DriverError):
    """The target refused the wanted state. It allows at most the wanted access.

    The same call may be repeated; it continues from the live state.
    """

    code = "target-failed"
    SENTENCE = "the target of volume {volume_id} refused: {why}"
    volume_id: str
    why: str


class HelperRefused(DriverError):
    """The root helper's rules forbid this request. The caller has a fault."""

    code = "helper-refused"
    SENTENCE = "the root helper refused {what}: {why}"
    what: str
    why: str


class HelperUnreachable(DriverError):
    """No answer from the root helper's socket. Start its unit, then try again."""

    code = "helper-unreachable"
    SENTENCE = (
        "the root helper does not answer ({why}) at {path}:"
        " systemctl restart lunshare-helper.socket lunshare-helper.service, and see"
        " their journal"
    )
    path: str
    why: str


class HelperBusy(DriverError):
    """The root helper is at its limit; it has started nothing. Try again later."""

    code = "helper-busy"
    SENTENCE = "the root helper is busy: {why}; try again later"
    why: str


class HelperForbidden(HelperUnreachable):
    """This user may not open the root helper's socket. Nothing was started."""

    code = "helper-forbidden"
    SENTENCE = (
        "user {user} may not use the root helper at {path}: name it in --user of"
        " lunshare-helper.service and its group in SocketGroup of"
        " lunshare-helper.socket, then systemctl restart both"
    )
    user: str


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
    SENTENCE = "{what} did not finish within {seconds:g} seconds"
    what: str
    seconds: float


class Stalled(DeadlineExceeded):
    """Work on bytes made no progress for so many seconds, after ``done`` bytes."""

    code = "stalled"
    SENTENCE = "{what} made no progress for {seconds:g} seconds, after {done} bytes"
    done: int


class CopyDiffers(DriverError):
    """A copy does not read back as its source. Do not delete the source."""

    code = "copy-differs"
    SENTENCE = "{target} is not a copy of its source: {why}"
    target: str
    why: str


class ForeignBytes(DriverError):
    """A new disk had bytes of another one. It has another name now; no host gets it."""

    code = "foreign-bytes"
    SENTENCE = (
        "the new disk of volume {volume_id} had bytes of another disk, so it is"
        " {disk} now: see whose it is ('Thin devices that LVM does not know' in"
        " docs/operations.md), then create the volume again"
    )
    volume_id: str
    disk: str
