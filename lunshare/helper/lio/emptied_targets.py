# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets without LUNs that a login which has begun may hold: removed later.

While such a login is there the kernel does not remove its ACL, and keeps the target's
ACLs locked. That is 15 s in 6.12 and 7.2. In 6.1 the time of a login counts only while
the target reads from it, so it is as long as the host keeps its connection
(``iscsi_target_do_login_rx``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from lunshare.drivers.errors import DeadlineExceeded, HelperBusy, TargetFailed
from lunshare.helper.lio import iscsi_target
from lunshare.helper.lio.begun_logins import LOGINS
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import Locks

LOG = logging.getLogger(__name__)

_PAUSE_SECONDS = 5.0
_LOCK_SECONDS = 20.0


class EmptiedTargets:
    """Removes them one after the other, in one thread that ends with the last."""

    def __init__(self, locks: Locks) -> None:
        self._locks, self._mutex = locks, threading.Lock()
        self._targets: dict[str, Target] = {}

    def add(self, target: Target) -> None:
        """Remove this target when nothing can hold it, unless it is used again."""
        with self._mutex:
            is_first = not self._targets
            self._targets[target.name] = target
        if is_first:
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while target := self._next():
            try:
                if not target.enabled() and LOGINS.may_exist(target.group):
                    time.sleep(_PAUSE_SECONDS)
                    continue
                self._remove(target)
            except Exception:  # the others are removed all the same
                LOG.exception("the empty target of %s stays", target.name)
            with self._mutex:
                if self._targets[target.name] is target:  # else it was added again
                    del self._targets[target.name]

    def _next(self) -> Target | None:
        with self._mutex:
            return next(iter(self._targets.values()), None)

    def _remove(self, target: Target) -> None:
        with (
            contextlib.suppress(OSError, TargetFailed, DeadlineExceeded, HelperBusy),
            self._locks.hold(target.name, _LOCK_SECONDS) as lock,
        ):
            if not target.enabled():
                iscsi_target.teardown(target, lock)
