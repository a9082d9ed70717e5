# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The end of an ACL, and ACLs that the kernel does not let go.

A host can leave what keeps its ACL until the node starts again
(docs/kernel-reports): a session that has no connection and is never freed
(logout-of-a-connection), or a dependency (pr-spec-i-pt). For such a session the removal
of the ACL waits for ever, and with it every change of the volume's other hosts. So such
an ACL stays, closed: without a LUN, with every login refused, and with a tag that says
why. Nothing of its host is left to land.

Of several sessions the kernel shows the latest only. That there may be another one is
read from the number of all sessions of the target. An ACL that stays for this reason
alone is used again, or removed by a full apply that finds no more sessions.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from lunshare.helper.lio import acls, reservations
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

# For sessions that are closing.
_SECONDS, _PAUSE_SECONDS = 0.5, 0.01
# "Not empty": the mapped LUN is still there, because it is depended on.
_DEPENDED_ON = (errno.EBUSY, errno.ENOTEMPTY)
#: Why an ACL is kept: the texts of its tag.
_UNSURE, _HELD = "sessions", "dependency"


def close(target: Target, initiator: str, lock: TimedLock) -> bool:
    """Close a host's access and remove its ACL; return whether there was access.

    :raises DeadlineExceeded: as ``acls.close``, or as ``_remove``.
    """
    acl = target.acl(initiator)
    if acls.why_kept(acl):
        if not acls.in_session(acl) and not _has_more_sessions(target):
            _removed(acl)
        return False
    reads = _reads(target, acl)
    existed = acls.close(acl, lock)
    reservations.void_saved(target, initiator)
    if existed:
        _remove(target, acl, lock, reads)
    return existed


def evict(target: Target, initiator: str, lock: TimedLock) -> None:
    """Take the host's LUN away. ``grant`` gives it another one.

    :raises DeadlineExceeded: as ``acls.close_to_move``.
    """
    acl = target.acl(initiator)
    reads = _reads(target, acl)
    acls.close_to_move(acl, lock)
    reservations.void_saved(target, initiator)
    _remove(target, acl, lock, reads)


def reasons(target: Target) -> dict[str, str]:
    """Return the hosts whose ACL is kept, each with the reason."""
    why = {host: acls.why_kept(target.acl(host)) for host in target.acls()}
    return {host: reason for host, reason in why.items() if reason}


def sessions(target: Target, hosts: Iterable[str]) -> int:
    """Return how many sessions these hosts show."""
    return sum(acls.in_session(target.acl(host)) for host in hosts)


def end_all(target: Target) -> None:
    """Remove or keep each ACL of a target without LUNs, where nobody can log in."""
    for acl in map(target.acl, target.acls()):
        if not target.sessions():
            _removed(acl)
        elif acls.is_dead(acl):
            acls.keep(acl, acls.DEAD)
        elif not acls.why_kept(acl):
            acls.keep(acl, _UNSURE)


def _reads(target: Target, acl: str) -> bool:
    """Whether no write of the host can be in progress: the readers' LUN has none."""
    return acls.maps(acl, target.lun(Role.READERS))


def _remove(target: Target, acl: str, lock: TimedLock, reads: bool) -> None:
    """Remove a closed ACL, or keep it.

    Only the removal waits for every session. ``info`` shows one, and none while a
    session is logging out that was not the host's latest: target_shutdown_sessions
    takes it from the list, and lio_tpg_close_session skips it (seen on 6.12). So of a
    host that may have written, the removal is the proof that all has landed. Where it
    is not removed, the number of sessions is.

    :raises DeadlineExceeded: such a session may have a write in progress.
    """
    what = f"removing the ACL of {os.path.basename(acl)}"
    if acls.is_dead(acl):
        acls.keep(acl, acls.DEAD)
    elif reads and _may_have_sessions(target):
        acls.keep(acl, _UNSURE)
    else:
        lock.run_step(what, _removed, acl)
    if not reads and acls.why_kept(acl):
        lock.wait_until(what, lambda: not _has_more_sessions(target))


def _removed(acl: str) -> None:
    try:
        acls.remove_idle(acl)
    except OSError as error:
        if error.errno not in _DEPENDED_ON:
            raise
        acls.keep(acl, _HELD)


def _may_have_sessions(target: Target) -> bool:
    """Whether the target has sessions that no ACL shows, and still has after a wait.

    A logout that is in progress ends meanwhile. Another host with several sessions
    looks the same as one of a dead session, so an ACL may be kept without need: the
    next full apply that finds no such session removes it.
    """
    until = time.monotonic() + _SECONDS
    while _has_more_sessions(target):
        if time.monotonic() > until:
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _has_more_sessions(target: Target) -> bool:
    """Whether the target has more sessions than its hosts show, or may have."""
    if not (before := target.sessions()):
        return False
    shown = sessions(target, target.acls())
    return max(before, target.sessions()) > shown
