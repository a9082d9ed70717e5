# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The end of an access, and the ACLs that stay after it.

The removal of an ACL waits for each login and session that holds it, with the directory
of the target's ACLs locked, and so does every change of the volume's other hosts. A
login that has begun holds it for 15 s, before any secret, and nothing shows it. A host
can leave what holds it until the node starts again (docs/kernel-reports): a session
that has no connection and is never freed (logout-of-a-connection), or a dependency
(pr-spec-i-pt). So a closed ACL stays: without a LUN, with every login refused, and with
a tag that says why. Nothing of its host is left to land. It is used again when the host
is attached again, or removed by a full apply while nothing can hold it.

The removal of a LUN of its own waits for each command of a host that writes, also of
sessions that the kernel does not show. For one that shares the writers' LUN, and was
logged in, the proof is that its target has no session that is not shown, or else the
removal of its ACL.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from lunshare.helper.lio import acls, empty_acls, idle_acls, reservations
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

LOG = logging.getLogger(__name__)


def close(target: Target, initiator: str, lock: TimedLock) -> bool:
    """Close a host's access and remove or keep its ACL; return whether it had access.

    :raises DeadlineExceeded: as ``acls.close``, or as ``_end``.
    """
    acl = target.acl(initiator)
    if acls.why_kept(acl) and not acls.has_live_session(acl):
        return False
    reads, own = _reads(target, acl), own_lun(target, acl)
    existed = acls.close(acl, own, lock)
    reservations.void_saved(target, initiator)
    if existed:
        _end(target, acl, lock, reads or own != "")
    return existed


def close_idle(target: Target, hosts: Iterable[str], lock: TimedLock) -> list[str]:
    """Close the access of those hosts that have no session; return them.

    In one step, since a thread for each costs more than what it does. With reservations
    the removal of a LUN may wait for ever, so each is left to ``close`` then, as is a
    host that logs in meanwhile.
    """
    paths = {host: target.acl(host) for host in hosts}
    idle = [host for host, acl in paths.items() if not acls.in_session(acl)]
    idle = [host for host in idle if not acls.why_kept(paths[host])]
    closed: list[str] = []
    if idle and not reservations.are_possible(target):
        what = f"closing {len(idle)} hosts of {target.name}"
        lock.run_step(what, _close_idle, target, idle, closed)
    return closed


def _close_idle(target: Target, idle: list[str], closed: list[str]) -> None:
    unmapped = [host for host in idle if _is_unmapped(target, target.acl(host))]
    reservations.void_saved(target, *unmapped)
    for host in unmapped:
        acls.note_kept(target.acl(host), acls.EMPTY)
        closed.append(host)


def _is_unmapped(target: Target, acl: str) -> bool:
    own = target.luns_of_hosts(acls.linked_luns(acl))
    return acls.close_idle(acl, own[0] if own else "", target.name)


def evict(target: Target, initiator: str, lock: TimedLock) -> None:
    """Take the host's LUN away. ``grant`` gives it another one.

    :raises DeadlineExceeded: as ``acls.close_to_move``.
    """
    acl = target.acl(initiator)
    reads, own = _reads(target, acl), own_lun(target, acl)
    acls.close_to_move(acl, own, lock)
    reservations.void_saved(target, initiator)
    _end(target, acl, lock, reads or own != "")


def _reads(target: Target, acl: str) -> bool:
    """Whether no write of the host can be in progress: the readers' LUN has none."""
    return acls.maps(acl, target.lun(Role.READERS))


def own_lun(target: Target, acl: str) -> str:
    """Return the path of the LUN that only this host has; "" for another one.

    Where hosts may reserve, none is unlinked: see ``empty_acls.stuck``.
    """
    own = target.luns_of_hosts(acls.mapped_luns(acl))
    return own[0] if own and not reservations.are_possible(target) else ""


def _end(target: Target, acl: str, lock: TimedLock, landed: bool) -> None:
    """Keep a closed ACL, or remove it where that is the proof that all has ``landed``.

    ``info`` shows one session, and none while a session is logging out that was not the
    host's latest: target_shutdown_sessions takes it from the list, and
    lio_tpg_close_session skips it (seen on 6.12). Where the ACL of a host on the
    writers' LUN is not removed, the number of sessions is the proof. While another host
    has several sessions the number tells nothing, and the ACL is removed.

    :raises DeadlineExceeded: such a session may have a write in progress.
    """
    what = f"removing the ACL of {os.path.basename(acl)}"
    if acls.is_stuck(acl):
        LOG.warning("the kernel does not remove the mapped LUN of %s", acl)
    elif acls.is_dead(acl):
        acls.keep(acl, acls.DEAD)
    elif landed or acls.is_idle(acl) or not idle_acls.has_more_sessions(target):
        acls.keep(acl, acls.EMPTY)
    else:
        lock.run_step(what, empty_acls.remove, acl)
    if not landed and acls.why_kept(acl) not in ("", acls.EMPTY):
        lock.wait_until(what, lambda: not idle_acls.has_more_sessions(target))
