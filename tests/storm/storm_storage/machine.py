# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The storage as others than the daemon use it: hosts, owners of disks, the storm."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection
from typing import Any

from lunshare.drivers.conformance.interruption import Countdown
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.fake.fake_storage import BLOCK, FakeDisk, storage
from lunshare.drivers.targets.fake import FakeSession, FakeTarget
from lunshare.drivers.values import Auth
from storm_storage.faults import Fault, Faults
from storm_storage.overlaps import Overlaps

_TARGET_OPTIONS = {option.dest: option.default for option in FakeTarget.OPTIONS}


class Machine:
    """Verbs for tests; a backend is given by its name."""

    def __init__(self, faults: Faults, overlaps: Overlaps) -> None:
        self._faults, self._overlaps = faults, overlaps
        self._numbers = itertools.count(1)
        self._sessions: dict[int, FakeSession] = {}
        self._dying: dict[str, Countdown] = {}
        self._mutex = threading.Lock()

    # hosts

    def login(
        self, backend: str, volume_id: str, initiator: str, auth: Auth | None
    ) -> int:
        """Log a host in; the number of its session. Raises as ``FakeTarget.login``."""
        target = FakeTarget(backend, _TARGET_OPTIONS, NoRoot())
        session, number = target.login(volume_id, initiator, auth), next(self._numbers)
        self._sessions[number] = session
        return number

    def session(self, number: int, verb: str, *given: Any) -> Any:
        """Read, write, close, or one of the properties of a session."""
        found = getattr(self._sessions[number], verb)
        return found(*given) if callable(found) else found

    # owners of disks

    def read(self, backend: str, volume_id: str, offset: int, length: int) -> bytes:
        """Bytes of a disk."""
        return storage(backend).read(volume_id, offset, length)

    def write(self, backend: str, volume_id: str, offset: int, data: bytes) -> None:
        """Write to a disk."""
        storage(backend).write(volume_id, offset, data)

    def discard(self, backend: str, volume_id: str, offset: int, length: int) -> None:
        """Discard bytes of a disk."""
        storage(backend).discard(volume_id, offset, length)

    def hold(self, backend: str, volume_id: str, is_open: bool) -> None:
        """Open a disk, or close it."""
        held = storage(backend).open
        (held.add if is_open else held.discard)(volume_id)

    def occupy(self, backend: str, size: int) -> None:
        """Use so many bytes of the pool; a negative number frees them."""
        storage(backend).foreign += size

    def fail(self, backend: str, reads: bool, writes: bool) -> None:
        """Let each read or write of the medium fail, or none."""
        held = storage(backend)
        held.fails_reads, held.fails_writes = reads, writes

    def put_foreign(
        self, backend: str, reference: str, size: int, blocks: dict[int, bytes]
    ) -> None:
        """Put a foreign disk into the pool; ``blocks`` by their number."""
        disk, held = FakeDisk(size), storage(backend)
        for number, data in blocks.items():
            disk.write(number * BLOCK, data)
        with held.lock:
            held.foreign_disks[reference] = disk
            held.foreign += size

    def put_foreign_export(self, backend: str, name: str, acls: dict[str, Any]) -> None:
        """Create an export with a foreign name."""
        storage(backend).foreign_exports[name] = acls

    def foreign_exports(self, backend: str) -> Any:
        """All foreign exports."""
        return [
            (name, initiator, acl.mode, len(acl.sessions))
            for name, acls in storage(backend).foreign_exports.items()
            for initiator, acl in acls.items()
        ]

    # the storm

    def state(self, backend: str, width: int) -> dict[str, Any]:
        """Everything; of each block that was written the first ``width`` bytes."""
        held = storage(backend)
        with held.lock:
            return {
                "disks": {k: _disk(d, width) for k, d in held.disks.items()},
                "snapshots": {k: _disk(d, width) for k, d in held.snapshots.items()},
                "foreign": {k: _disk(d, width) for k, d in held.foreign_disks.items()},
                "leaving": list(held.deleted),
                "exports": {
                    volume_id: {
                        name: (str(acl.mode), acl.attachment_id)
                        for name, acl in acls.items()
                    }
                    for volume_id, acls in held.exports.items()
                },
            }

    def live(self, backend: str) -> dict[str, dict[str, str]]:
        """The mode of each initiator of each volume."""
        held = storage(backend)
        with held.lock:
            return {
                volume_id: {name: str(acl.mode) for name, acl in acls.items()}
                for volume_id, acls in held.exports.items()
            }

    def where(self, volume_id: str, backends: Collection[str]) -> list[str]:
        """The backends that have a disk of that volume."""
        return [name for name in backends if volume_id in storage(name).disks]

    def arm(self, kind: str, backend: str, point: str, times: int, sec: float) -> None:
        """Arm a fault; see ``Fault``."""
        self._faults.arm(Fault(kind, backend, point, times, sec))

    def clear(self) -> None:
        """Clear all faults."""
        self._faults.clear()

    def hanging(self) -> list[tuple[str, str]]:
        """The backend and point of each call that hangs."""
        return list(self._faults.hanging)

    def overlaps(self) -> list[str]:
        """The verbs that ran at the same time on one volume."""
        return list(self._overlaps.seen)

    def die_after(self, ident: str, steps: int) -> None:
        """The driver of that key dies at this many points from now."""
        self._dying[ident] = Countdown(steps)

    def count(self, ident: str, point: str) -> None:
        """A driver passes a point."""
        if countdown := self._dying.get(ident):
            countdown(point)


def _disk(disk: FakeDisk, width: int) -> tuple[int, bool, dict[int, bytes]]:
    blocks = disk.blocks or {}
    return disk.size, disk.complete, {n: bytes(b[:width]) for n, b in blocks.items()}
