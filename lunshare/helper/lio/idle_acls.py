# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the ACLs of a target show together: which sessions, and which ACLs are idle.

To tell that reads every ACL of the target.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from lunshare.helper.lio import acls, empty_acls
from lunshare.helper.lio.begun_logins import LOGINS
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

# So many may stay beside logins that may have begun: 64 hosts that were detached.
_MOST_KEPT = 64


def remove_idle(target: Target, lock: TimedLock) -> None:
    """Remove the kept ACLs that nothing can hold. This changes no access.

    Beside logins that may have begun, ``_MOST_KEPT`` stay. It reads every ACL of the
    target, so a change of single hosts does not call it.
    """
    kept = {target.acl(host): why for host, why in empty_acls.reasons(target).items()}
    closed = [acl for acl, why in kept.items() if why not in acls.REFUSED]
    idle = [acl for acl in closed if not acls.in_session(acl)]
    if not idle or has_more_sessions(target):
        return
    if LOGINS.may_exist(target.group):
        random.shuffle(idle)  # who holds one cannot know which of them are next
        idle = idle[_MOST_KEPT:]
    for acl in idle:
        if kept[acl] == acls.HELD:
            acls.unmap(acl, lock)
    what = f"removing {len(idle)} empty ACLs of {target.name}"
    lock.run_step(what, _remove_each, idle, lock)


def _remove_each(paths: Iterable[str], lock: TimedLock) -> None:
    for acl in paths:
        if not lock.left():  # a login that has begun held one: the next apply goes on
            return
        empty_acls.remove(acl)


def has_more_sessions(target: Target) -> bool:
    """Whether the target has more sessions than its hosts show, or may have.

    What is shown before and after the count was there when it was taken.
    """
    before = _shown(target)
    count = target.sessions()
    return count > len(before & _shown(target))


def _shown(target: Target) -> set[tuple[str, int]]:
    """Return the session that each host shows."""
    latest = ((host, acls.session(target.acl(host))) for host in target.acls())
    return {(host, number) for host, number in latest if number}
