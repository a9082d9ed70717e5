# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs that read targets. They change nothing, and need no lock of a change.

The kernel locks the directory of the ACLs while it removes one and waits for its disk
(see ``acls``). So each target is read in a thread of its own, until a deadline. A read
that hangs occupies no second thread, and holds up no other target.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lunshare.drivers.errors import DeadlineExceeded, HelperBusy
from lunshare.drivers.values import UUID
from lunshare.helper.lio import comparison, registrations
from lunshare.helper.lio.cinder_targets import TakesOver
from lunshare.helper.lio.configfs import ISCSI, names
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.lio.target_verbs import as_target_failed
from lunshare.helper.named_locks import Locks

# They have a part of the threads, like any other medium.
_READS = "reads of targets"
# An emulated processor reads a host in some 10 ms.
_SECONDS, _HOST_SECONDS = 2.0, 0.01

_Value = TypeVar("_Value")


class TargetReads:
    """Reads targets named ``prefix`` plus ``volume-UUID``, and no others.

    :raises DeadlineExceeded: the target hangs.
    """

    def __init__(self, prefix: str, takes_over: TakesOver | None = None) -> None:
        """As for TargetVerbs."""
        self._prefix, self._takes_over = prefix, takes_over
        self.ours = re.compile(re.escape(prefix) + f"volume-({UUID})")
        self._reads = Locks()

    def observe(self, seconds: float) -> list[dict[str, Any]]:
        """Return every export of lunshare, with the fields of LiveExport.

        Of one that hangs it has the volume's id, and why it could not be read.
        """
        until = time.monotonic() + seconds
        matches = filter(None, map(self.ours.fullmatch, names(ISCSI)))
        exports = (self._live_or_why(match[1], until) for match in matches)
        return [export for export in exports if export is not None]

    def live(self, volume_id: str, seconds: float) -> dict[str, Any] | None:
        """Return the export of one volume, as ``observe`` does; None if it has none."""
        target = self.target(volume_id)
        hosts = target.count_hosts()
        return self._read(
            target.name,
            min(seconds, _SECONDS + _HOST_SECONDS * hosts),
            lambda: comparison.observe(target) if is_ours(target) else None,
        )

    def host(
        self, volume_id: str, initiator: str, seconds: float
    ) -> dict[str, Any] | None:
        """Return one host's access with the fields of LiveConnector; None without one.

        It costs the same whatever hosts the volume has.
        """
        target = self.target(volume_id)
        return self._read(
            f"{initiator} in {target.name}",
            min(seconds, _SECONDS),
            lambda: comparison.observe_host(target, initiator),
        )

    def compare(self, wanted: Apply, seconds: float) -> list[dict[str, str | None]]:
        """Return how the live export differs from the wanted one; change nothing."""
        target = self.target(wanted.export.volume_id)
        read = partial(as_target_failed, comparison.answers, target, wanted)
        return self._read(f"the differences of {target.name}", seconds, read)

    def registrations(self, volume_id: str, seconds: float) -> list[dict[str, str]]:
        """Return the reservation keys of a volume, with the fields of Registration.

        It reads no ACL, so it costs the same whatever hosts the volume has.
        """
        target = self.target(volume_id)
        return self._read(
            f"the reservations of {target.name}",
            min(seconds, _SECONDS),
            lambda: registrations.shown(target),
        )

    def _live_or_why(self, volume_id: str, until: float) -> dict[str, Any] | None:
        half = max(0.0, until - time.monotonic()) / 2
        try:
            return self.live(volume_id, half)
        except (DeadlineExceeded, HelperBusy) as error:
            return {"volume_id": volume_id, "unread": str(error)}

    def target(self, volume_id: str) -> Target:
        return Target(self._prefix, volume_id, self._takes_over)

    def _read(self, name: str, seconds: float, read: Callable[[], _Value]) -> _Value:
        values: list[_Value] = []
        with self._reads.hold(name, seconds, _READS) as lock:
            lock.run_step(f"reading {name}", lambda: values.append(read()))
        return values[0]


def is_ours(target: Target) -> bool:
    """Whether lunshare has created the target, or taken it over."""
    return os.path.isdir(target.path) and not target.foreign_parts()
