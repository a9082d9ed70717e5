# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The ACLs of a target that stay closed, and how they are removed at last."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from threading import Event

from lunshare.drivers.errors import TargetFailed
from lunshare.helper.lio import acls, reservations
from lunshare.helper.lio.configfs import remove_object
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

# "Not empty": the mapped LUN is still there, because it is depended on.
_DEPENDED_ON = (errno.EBUSY, errno.ENOTEMPTY)
_STUCK = (
    "initiator %s has left a registration (SPEC_I_PT) that the kernel does not end:"
    " its export can be removed after the node's next start"
)


def reasons(target: Target) -> dict[str, str]:
    """Return the hosts whose ACL is kept, each with the reason."""
    why = {host: acls.why_kept(target.acl(host)) for host in target.acls()}
    return {host: reason for host, reason in why.items() if reason}


def sessions(target: Target, hosts: Iterable[str]) -> int:
    """Return how many sessions these hosts show."""
    return sum(acls.in_session(target.acl(host)) for host in hosts)


def stuck(target: Target) -> list[str]:
    """Return the hosts whose LUN the kernel is removing, for ever.

    No LUN of their target can be removed meanwhile (core_clear_lun_from_tpg).
    """
    return [host for host in target.acls() if acls.is_stuck(target.acl(host))]


def unmap_all(target: Target, lock: TimedLock) -> None:
    """Remove every mapped LUN of a target where nobody can log in.

    :raises TargetFailed: see ``stuck``.
    """
    for initiator in target.acls():
        acls.unmap(target.acl(initiator), lock)
        reservations.end_moved(target, initiator)
    need_luns(target)


def need_luns(target: Target) -> None:
    """Check whether the LUNs of the target can be removed.

    :raises TargetFailed: see ``stuck``.
    """
    if hosts := stuck(target):
        raise TargetFailed(target.volume_id, _STUCK % ", ".join(hosts))


def end_all(target: Target, hosts: Iterable[str], stay: bool, given_up: Event) -> None:
    """Remove or keep the ACLs of a target without LUNs, where nobody can log in.

    All of them ``stay`` beside a login that may have begun: see ``emptied_targets``.
    With ``given_up`` the rest is left alone.
    """
    for acl in map(target.acl, hosts):
        if given_up.is_set():
            return
        if not stay and not target.sessions():
            remove(acl)
        elif acls.is_dead(acl):
            acls.keep(acl, acls.DEAD)
        elif not acls.why_kept(acl):
            acls.keep(acl, acls.EMPTY)


def remove(acl: str) -> None:
    """Remove a closed ACL, or keep it where the kernel does not let it go."""
    try:
        remove_object(acl)
    except OSError as error:
        if error.errno not in _DEPENDED_ON:
            raise
        acls.keep(acl, acls.HELD)
