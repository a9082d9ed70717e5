# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a full apply corrects in a live target, without an effect on its hosts' I/O."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from lunshare.drivers.errors import InvalidValue, TargetFailed
from lunshare.drivers.values import Connector, Disk, Portal, iscsi_name
from lunshare.helper.lio import acls, backstores, kept_acls
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import (
    create_object,
    links,
    names,
    read,
    read_or_empty,
    remove_object,
    write,
    write_if_different,
)
from lunshare.helper.lio.iscsi_target import ATTRIBUTES, create_portal, remove_lun
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.named_locks import TimedLock

#: Whether a LUN's port refuses every command.
OFFLINE = "/alua_tg_pt_offline"
# Those that concern the hosts which are let in from now on.
_FOR_NEW_HOSTS = (
    "attrib/prod_mode_write_protect",
    "param/ImmediateData",
    "param/DefaultTime2Retain",
)
# Of the numbers that the LUN of a host may have: the first, or one is in use.
_LIKELY = 2


def prepare_for_hosts(target: Target) -> None:
    """Prepare a target of Cinder's LVM driver for new hosts, before its full apply.

    It has the kernel's defaults: a new mapped LUN is writable (seen on 6.12), and a
    command may carry data.
    """
    for name in _FOR_NEW_HOSTS:
        write_if_different(f"{target.group}/{name}", ATTRIBUTES[name])


def differing(target: Target) -> Iterator[tuple[str, str]]:
    """Yield each attribute that the portal group has otherwise, and its value."""
    if not os.path.isdir(target.group):
        return
    for name, value in ATTRIBUTES.items():
        if read(f"{target.group}/{name}") != value:
            yield name, value


def correct_group(target: Target, lock: TimedLock) -> list[str]:
    """Correct the attributes of the portal group; return the changes.

    It comes before a session is ended, which may wait for its disk: some of these
    attributes let hosts in. Those of a target of Cinder's driver wait for ``repair``.

    :raises DeadlineExceeded: the kernel still ends sessions for an earlier call.
    """
    changes: list[str] = []
    if not target.cinder_backstore():
        what = f"correcting the attributes of {target.name}"
        lock.run_step(what, lambda: changes.extend(_correct(target)))
    return changes


def repair(
    target: Target,
    disk: Disk,
    reservations: bool,
    portals: Iterable[Portal],
    hosts: Iterable[Connector],
) -> list[str]:
    """Correct a live target's attributes and portals, without affecting sessions.

    Call it when no read-only host has the writers' LUN, which allows every command.
    ``hosts``: those whose own LUN may not be as it should be.
    """
    changes = _correct(target)
    for role in Role:
        if path := target.backstore(role):
            changes += backstores.repair(path, disk, role)
            changes += _set_online(target, role)
            if role is Role.WRITERS:
                changes += backstores.set_reservations(path, reservations)
    mapped = (acls.mapped_luns(target.acl(host.initiator)) for host in hosts)
    for lun in target.luns_of_hosts(chain.from_iterable(mapped)):
        if write_if_different(lun + OFFLINE, "0"):
            changes.append(f"{os.path.basename(lun)} set online")
    extra, missing = differing_portals(target, portals)
    for name in extra:
        remove_object(f"{target.group}/np/{name}")
        changes.append(f"portal {name} removed")
    for name in missing:
        if create_portal(f"{target.group}/np/{name}"):
            changes.append(f"portal {name} created")
    return changes


def _correct(target: Target) -> list[str]:
    changes = []
    for name, value in differing(target):
        write(f"{target.group}/{name}", value)
        changes.append(f"{os.path.basename(name)} set to {value}")
    return changes


def differing_portals(
    target: Target, portals: Iterable[Portal]
) -> tuple[list[str], list[str]]:
    """Return the portals that it has and should not have, and those it has not."""
    addresses = {str(portal) for portal in portals}
    live = set(names(target.group + "/np"))
    return sorted(live - addresses), sorted(addresses - live)


def _set_online(target: Target, role: Role) -> list[str]:
    """Undo what a host's SET TARGET PORT GROUPS has done to a LUN's port."""
    if write_if_different(target.lun(role) + OFFLINE, "0"):
        return [f"LUN of the {role} set online"]
    return []


def close_unknown_hosts(target: Target, lock: TimedLock) -> list[str]:
    """End the sessions of hosts without an ACL, which a person has let in.

    Such a session has no mapped LUN in configfs that could be write-protected. The
    kernel makes its own ACL visible when one of that name is created
    (core_tpg_add_initiator_node_acl, 6.1).

    :raises TargetFailed: the name of such a host cannot be that of an ACL.
    """
    lets_in = target.group + "/attrib/generate_node_acls"
    if read_or_empty(lets_in) == "1":
        write(lets_in, "0")
    closed: set[str] = set()
    while new := target.unknown_hosts() - closed:
        for initiator in sorted(new):
            name = _name_of_acl(target, initiator)
            create_object(target.acl(name))
            kept_acls.close(target, name, lock)
        closed |= new
    return [f"{initiator} closed, which had no ACL" for initiator in sorted(closed)]


def _name_of_acl(target: Target, initiator: str) -> str:
    """Return the name; the kernel takes any from a host, also a path."""
    try:
        return iscsi_name(initiator)
    except InvalidValue:
        why = f"host {initiator!a} is logged in without an ACL: end its session"
        raise TargetFailed(target.volume_id, why) from None


def remove_extra_luns(target: Target, hosts: Iterable[Connector]) -> list[str]:
    """Remove the extra mapped LUNs of hosts that keep their access."""
    changes = []
    for initiator in (host.initiator for host in hosts):
        acl = target.acl(initiator)
        if acls.extra_mapped_luns(acl):
            acls.remove_extra_mapped_luns(acl)
            changes.append(f"an extra mapped LUN of {initiator} removed")
    return changes


def remove_unused_luns(target: Target, lock: TimedLock) -> list[str]:
    """Remove the LUNs of single hosts that no ACL maps, as a killed helper left them.

    It reads every ACL of the target, so a change of single hosts does not call it.
    """
    used = {lun for host in target.acls() for lun in acls.mapped_luns(target.acl(host))}
    unused = target.luns_of_hosts(set(names(target.group + "/lun")) - used)
    ours = [lun for lun in unused if target.is_linked(lun) or _is_begun(target, lun)]
    for lun in ours:
        lock.run_step(f"closing {lun}", remove_lun, lun)
    return [f"unused {os.path.basename(lun)} removed" for lun in ours]


def _is_begun(target: Target, lun: str) -> bool:
    """Whether it is the LUN of a host with an ACL, without a link yet or any more."""
    its_own = (islice(target.own_luns(host), _LIKELY) for host in target.acls())
    return not links(lun) and lun in chain.from_iterable(its_own)
