# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a driver. Each error carries fields and writes its sentence."""

from __future__ import annotations


class DriverError(Exception):
    """Base of all; ``code`` is stable and may be matched by callers."""

    code = "driver-failed"


class InvalidValue(DriverError, ValueError):
    """A value is not of its form. Mend the input; a retry changes nothing."""

    code = "invalid-value"

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(f"{name} {value!r} is not valid: {remedy}")
        self.name, self.value, self.remedy = name, value, remedy


class Misconfigured(DriverError):
    """An option or the node is wrong. The operator mends it and starts again."""

    code = "misconfigured"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what, self.remedy = what, remedy


class UnknownDisk(DriverError):
    """The backend has no disk for this volume."""

    code = "unknown-disk"

    def __init__(self, volume_id: str) -> None:
        super().__init__(
            f"volume {volume_id} has no disk on this backend: bring its disk back, or"
            " delete its attachments and then the volume"
        )
        self.volume_id = volume_id


class UnknownSnapshot(DriverError):
    """The backend has no such snapshot."""

    code = "unknown-snapshot"

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(f"snapshot {snapshot_id} is not on this backend")
        self.snapshot_id = snapshot_id


class LostSnapshot(UnknownSnapshot):
    """The snapshot is there, and its bytes are not. Delete it; take another."""

    code = "lost-snapshot"

    def __init__(self, snapshot_id: str, why: str) -> None:
        DriverError.__init__(
            self, f"snapshot {snapshot_id} has lost its bytes: {why}; delete it"
        )
        self.snapshot_id, self.why = snapshot_id, why


class UnknownReference(DriverError):
    """The pool has nothing of that name that could become a volume."""

    code = "unknown-reference"

    def __init__(self, reference: str, why: str) -> None:
        super().__init__(f"{reference!r} cannot become a volume: {why}")
        self.reference, self.why = reference, why


class DiskBusy(DriverError):
    """The disk is open somewhere. Close its users, then try again."""

    code = "disk-busy"

    def __init__(self, volume_id: str, why: str) -> None:
        super().__init__(f"volume {volume_id} is in use: {why}")
        self.volume_id, self.why = volume_id, why


class NoSpace(DriverError):
    """The pool has no room. Nothing was made."""

    code = "no-space"

    def __init__(self, pool: str, why: str) -> None:
        super().__init__(f"pool {pool} has no room: {why}")
        self.pool, self.why = pool, why


class Unsupported(DriverError):
    """This driver cannot do that, and says so before it touches anything."""

    code = "unsupported"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not supported: {remedy}")
        self.what, self.remedy = what, remedy


class CommandFailed(DriverError):
    """A command ended badly. The same call may be repeated."""

    code = "command-failed"

    def __init__(self, argv: tuple[str, ...], exit_code: int, stderr: str) -> None:
        super().__init__(f"{' '.join(argv)} exited {exit_code}: {stderr.strip()}")
        self.argv, self.exit_code, self.stderr = argv, exit_code, stderr


class TargetFailed(DriverError):
    """The target did not take the wanted state. Access is closed, never wider.

    The same call may be repeated; it goes on from what is live.
    """

    code = "target-failed"

    def __init__(self, volume_id: str, why: str) -> None:
        super().__init__(f"the target of volume {volume_id} refused: {why}")
        self.volume_id, self.why = volume_id, why


class HelperRefused(DriverError):
    """The root helper's rules forbid this request. It is a fault in the caller."""

    code = "helper-refused"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"the root helper refused {what}: {why}")
        self.what, self.why = what, why


class HelperUnreachable(DriverError):
    """No answer from the root helper's socket. Start its unit, then try again."""

    code = "helper-unreachable"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the root helper does not answer at {path} ({why}):"
            " systemctl restart lunshare-helper.socket lunshare-helper.service, and see"
            " their journal"
        )
        self.path, self.why = path, why


class HelperBusy(DriverError):
    """The root helper has all its hands full; it has begun nothing. Try again later."""

    code = "helper-busy"

    def __init__(self, why: str) -> None:
        super().__init__(f"the root helper is busy: {why}; try again later")
        self.why = why


class Interrupted(HelperUnreachable):
    """The root helper ended while it worked on this; it may still be done.

    Nothing is known of the outcome. Repeat the whole verb, which looks first.
    """

    code = "interrupted"


class DeadlineExceeded(DriverError):
    """The kernel or a command did not finish in time; it may still finish.

    Nothing is known of the outcome. Repeat the call later; do not report
    success, and do not report a fence.
    """

    code = "deadline-exceeded"

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not finish within {seconds:g} seconds")
        self.what, self.seconds = what, seconds


class Stalled(DeadlineExceeded):
    """Work on bytes came no further for so long; ``done`` of them were done."""

    code = "stalled"

    def __init__(self, what: str, seconds: float, done: int) -> None:
        DriverError.__init__(
            self, f"{what} made no progress for {seconds:g} seconds, after {done} bytes"
        )
        self.what, self.seconds, self.done = what, seconds, done


class CopyDiffers(DriverError):
    """What was read back of a copy is not what its source holds. Keep the source."""

    code = "copy-differs"

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"{target} is not a copy of its source: {why}")
        self.target, self.why = target, why
