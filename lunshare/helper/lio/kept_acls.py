# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The end of an ACL, and ACLs that the kernel does not let go.

A host can leave what keeps its ACL until the node starts again
(docs/kernel-reports): a session that has no connection and is never freed
(logout-of-a-connection), or a dependency (pr-spec-i-pt). For such a session the removal
of the ACL waits for ever, and with it every change of the volume's other hosts. So such
an ACL stays, closed: without a LUN, with every login refused, and with a tag that says
why. Nothing of its host is left to land.

Of several sessions the kernel shows the latest only. Where none was ended by force,
"no session" is certain (``acls.is_idle``), and where the target has one at most, its
number is. Else another session may be hidden. An ACL that stays for this reason alone
is used again, or removed by a full apply that finds no more sessions.
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

# For the target's only session, which is closing.
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
        return False
    reads, before = _reads(target, acl), target.sessions()
    existed = acls.close(acl, lock)
    reservations.void_saved(target, initiator)
    if existed:
        _remove(target, acl, lock, reads, before)
    return existed


def evict(target: Target, initiator: str, lock: TimedLock) -> None:
    """Take the host's LUN away. ``grant`` gives it another one.

    :raises DeadlineExceeded: as ``acls.close_to_move``.
    """
    acl = target.acl(initiator)
    reads, before = _reads(target, acl), target.sessions()
    acls.close_to_move(acl, lock)
    reservations.void_saved(target, initiator)
    _remove(target, acl, lock, reads, before)


def remove_idle(target: Target, lock: TimedLock) -> list[str]:
    """Remove the kept ACLs whose hosts have no session any more; return the changes.

    It reads every ACL of the target, so a change of single hosts does not call it.
    """
    paths = [target.acl(host) for host in reasons(target)]
    idle = [acl for acl in paths if not acls.in_session(acl)]
    if not idle or _has_more_sessions(target):
        return []
    for acl in idle:
        lock.run_step(f"removing the ACL of {os.path.basename(acl)}", _removed, acl)
    hosts = [os.path.basename(acl) for acl in idle if not os.path.isdir(acl)]
    return [f"empty ACL of {host} removed" for host in hosts]


def reasons(target: Target) -> dict[str, str]:
    """Return the hosts whose ACL is kept, each with the reason."""
    why = {host: acls.why_kept(target.acl(host)) for host in target.acls()}
    return {host: reason for host, reason in why.items() if reason}


def sessions(target: Target, hosts: Iterable[str]) -> int:
    """Return how many sessions these hosts show."""
    return sum(acls.in_session(target.acl(host)) for host in hosts)


def unmap_all(target: Target) -> None:
    """Remove every mapped LUN of a target where nobody can log in.

    This may wait for ever, after a registration with SPEC_I_PT.
    """
    for initiator in target.acls():
        acls.unmap(target.acl(initiator))
        reservations.end_moved(target, initiator)


def end_all(target: Target) -> None:
    """Remove or keep each ACL of a target without LUNs, where nobody can log in.

    This waits for a login that has begun: the kernel ends it after 15 s.
    """
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


def _remove(
    target: Target, acl: str, lock: TimedLock, reads: bool, before: int
) -> None:
    """Remove a closed ACL, or keep it. ``before``: the target's sessions before that.

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
    elif reads and not acls.is_idle(acl) and not _has_ended(target, before):
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


def _has_ended(target: Target, before: int) -> bool:
    """Whether the target has no session left.

    One that is not shown any more is freed a moment later. That is waited for where
    no other host can have had one, so none delays the detach of another.
    """
    until = time.monotonic() + (_SECONDS if before <= 1 else 0.0)
    while target.sessions():
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _has_more_sessions(target: Target) -> bool:
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
