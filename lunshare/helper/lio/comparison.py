# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a live target is, and how it differs from the wanted one. Reads only.

The values are those that ``target_verbs`` applies, from the same functions. Each
attribute of a host is read once, so the cost is that of reading the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from lunshare.drivers.drifts import Drift, DriftKind
from lunshare.drivers.values import Connector, Disk, Mode
from lunshare.helper.lio import (
    acls,
    backstores,
    empty_acls,
    iscsi_target,
    registrations,
    repairs,
)
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import names, read, read_or_empty
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_tree import Target

_LUN = "lun_0"
# Whose sessions are the rest of a count is found by a look at every host.
_COUNTED = 100


def answers(target: Target, wanted: Apply) -> list[dict[str, str | None]]:
    """Return the fields of each difference, as they go to the client."""
    return [
        {"kind": drift.kind.value, "what": drift.what, "initiator": drift.initiator}
        for drift in compare(target, wanted)
    ]


def observe(target: Target) -> dict[str, Any]:
    """Return a target with the fields of LiveExport."""
    remains = empty_acls.reasons(target)
    open_to = (host for host in target.acls() if host not in remains)
    connectors = (_live(target, initiator) for initiator in open_to)
    found = [connector for connector in connectors if connector]
    count_sessions(found, target.sessions() - empty_acls.sessions(target, remains))
    return {
        "volume_id": target.volume_id,
        "enabled": target.enabled(),
        "connectors": found,
        "remains": remains,
        "registrations": registrations.shown(target),
    }


def observe_host(target: Target, initiator: str) -> dict[str, Any] | None:
    """Return the access of one host with the fields of LiveConnector; None without one.

    Its cost has a bound, whatever hosts the target has.
    """
    acl = target.acl(initiator)
    connector = None if acls.why_kept(acl) else _live(target, initiator)
    if connector is not None:
        connector["sessions"] = _sessions_of(target, initiator)
    return connector


def _sessions_of(target: Target, initiator: str) -> int | None:
    """Return how many sessions a host has; None as ``count_sessions``."""
    logged_in, total = acls.in_session(target.acl(initiator)), target.sessions()
    if total <= logged_in:
        return total
    if target.count_hosts() > _COUNTED:
        return None
    remains = empty_acls.reasons(target)
    found: list[dict[str, Any]] = [
        {"initiator": host, "sessions": int(acls.in_session(target.acl(host)))}
        for host in target.acls()
        if host not in remains
    ]
    count_sessions(found, total - empty_acls.sessions(target, remains))
    counted = {host["initiator"]: host["sessions"] for host in found}
    count: int | None = counted.get(initiator, 0)
    return count


def _live(target: Target, initiator: str) -> dict[str, Any] | None:
    """Return one ACL with the fields of LiveConnector; None if it is gone meanwhile."""
    acl, readers = target.acl(initiator), {os.path.basename(target.lun(Role.READERS))}
    try:
        tag, mode, luns = acls.tag(acl), acls.mode(acl), acls.linked_luns(acl)
        refused = _refused_mib(acl) if mode is Mode.RO else None
        if mode is Mode.RO and tag != acls.FENCING and luns != readers:
            mode = Mode.RW  # write protection alone does not refuse all that writes
        sessions = int(acls.in_session(acl))
        addresses = acls.addresses(acl) if sessions else []
    except FileNotFoundError:
        return None
    return {
        "initiator": initiator,
        "mode": mode and mode.value,
        "attachment_id": tag,
        "sessions": sessions,
        "addresses": addresses,
        "refused_mib": refused,
    }


def count_sessions(found: Sequence[dict[str, Any]], total: int) -> None:
    """Correct the numbers of sessions by that of the target.

    The kernel shows one session of an ACL, whatever their number, and none while a
    session is logging out that was not the latest. Whose the others are is known where
    only one host can have them; else these numbers are None.
    """
    logged_in = [connector for connector in found if connector["sessions"]]
    if total > len(logged_in):
        owners = logged_in or found
        for connector in owners:
            connector["sessions"] = total if len(owners) == 1 else None


def _refused_mib(acl: str) -> int | None:
    """Return how many MiB a host that may only read has tried to write.

    The kernel counts also what it refuses (transport_lookup_cmd_lun, 6.1).
    """
    counted = read_or_empty(acl + "/lun_0/statistics/scsi_auth_intr/write_mbytes")
    return int(counted) if counted else None


def compare(target: Target, wanted: Apply) -> Iterator[Drift]:
    """Yield each difference, what lets a host do too much first.

    :raises OSError: an object was removed meanwhile, or cannot be read.
    """
    if parts := target.foreign_parts():
        what = f"another program has created {target.iqn}, with {', '.join(parts)}"
        yield Drift(DriftKind.FOREIGN, what)
        return
    hosts = list(_of_hosts(target, wanted))
    yield from (drift for drift in hosts if drift.kind is DriftKind.WIDER)
    yield from _of_group(target, wanted)
    yield from (drift for drift in hosts if drift.kind is not DriftKind.WIDER)
    yield from _foreign(target)


def differing_hosts(target: Target, wanted: Apply) -> tuple[Connector, ...]:
    """Return the hosts that do not have exactly the wanted access, or LUN.

    An older version let all that write share one LUN, which is no drift.
    """
    shares = wanted.export.reservations
    hosts = wanted.export.connectors
    return tuple(host for host in hosts if _differs(target, host, shares))


def _differs(target: Target, host: Connector, shares: bool) -> bool:
    acl = target.acl(host.initiator)
    try:
        if not os.access(acl, os.F_OK) or next(_of_host(target, acl, host), None):
            return True
    except OSError:
        return True  # an apply says what it is, after it has closed the others
    is_old = host.mode is Mode.RW and not shares
    return is_old and acls.maps(acl, target.lun(Role.WRITERS))


def _of_hosts(target: Target, wanted: Apply) -> Iterator[Drift]:
    connectors = {host.initiator: host for host in wanted.export.connectors}
    live = target.acls()
    for initiator in sorted(target.unknown_hosts()):
        what = f"{initiator!a} is logged in without an ACL"
        yield Drift(DriftKind.WIDER, what, initiator)
    for initiator in live:
        acl = target.acl(initiator)
        if connector := connectors.get(initiator):
            yield from _of_host(target, acl, connector)
        elif not acls.why_kept(acl):
            what = f"{initiator} has an ACL, and no attachment"
            yield Drift(DriftKind.WIDER, what, initiator)
    for initiator in connectors.keys() - set(live):
        what = f"{initiator} has no ACL"
        yield Drift(DriftKind.NARROWER, what, initiator)


def _of_host(target: Target, acl: str, wanted: Connector) -> Iterator[Drift]:
    host, (tag, luns) = wanted.initiator, acls.tag_and_luns(acl)
    if tag == acls.STUCK_TAG:
        yield Drift(DriftKind.NARROWER, f"no LUN is mapped to {host}", host)
        return
    extra = [name for name in names(acl) if name.startswith("lun_") and name != _LUN]
    if extra:
        what = f"{host} has a mapped LUN more: {', '.join(sorted(extra))}"
        yield Drift(DriftKind.WIDER, what, host)
    yield from _of_mode(target, acl, tag, luns, wanted)
    if tag != wanted.attachment_id:
        what = f"the ACL of {host} is tagged {tag!a}, not {wanted.attachment_id}"
        yield Drift(DriftKind.ATTRIBUTE, what, host)
    name, value = acls.PATIENCE
    if (live := read(f"{acl}/{name}")) != value:
        what = f"{os.path.basename(name)} of {host} is {live}, not {value}"
        yield Drift(DriftKind.ATTRIBUTE, what, host)
    for name, value in acls.credentials(wanted.auth).items():
        if read(f"{acl}/{name}") != value:
            yield Drift(DriftKind.CREDENTIAL, f"{host} has another {name}", host)


def _of_mode(
    target: Target, acl: str, tag: str, luns: set[str], wanted: Connector
) -> Iterator[Drift]:
    """Compare the write protection of its LUN, and which of the two LUNs it is."""
    host, mode = wanted.initiator, acls.mode(acl)
    if mode is None:
        yield Drift(DriftKind.NARROWER, f"no LUN is mapped to {host}", host)
        return
    if mode is not wanted.mode:
        wider = mode is Mode.RW
        kind = DriftKind.WIDER if wider else DriftKind.NARROWER
        what = f"{host} is not write-protected" if wider else f"{host} may not write"
        yield Drift(kind, f"{what}, and its attachment is {wanted.mode}", host)
    if iscsi_target.has_other_lun(target, tag, luns, wanted.mode):
        reads = wanted.mode is Mode.RO
        kind = DriftKind.WIDER if reads else DriftKind.NARROWER
        what = f"{host} does not have the LUN of the {backstores.ROLES[wanted.mode]}"
        yield Drift(kind, what, host)
        return
    for lun in target.luns_of_hosts(luns):
        if read_or_empty(lun + repairs.OFFLINE) != "0":
            yield Drift(DriftKind.ATTRIBUTE, f"the LUN of {host} is offline", host)


def _of_group(target: Target, wanted: Apply) -> Iterator[Drift]:
    """Compare the target, its portals and its LUNs; not where no host needs it."""
    disk = wanted.export.disk
    if disk is None or not wanted.export.connectors:
        if target.enabled():
            what = f"{target.name} is exported, and has no attachment"
            yield Drift(DriftKind.TARGET, what)
        return
    if not os.path.isdir(target.group):
        yield Drift(DriftKind.TARGET, f"the target of {target.name} is missing")
        return
    for name, value in repairs.differing(target):
        live = read(f"{target.group}/{name}")
        what = f"{os.path.basename(name)} of {target.name} is {live}, not {value}"
        yield Drift(DriftKind.ATTRIBUTE, what)
    extra, missing = repairs.differing_portals(target, wanted.portals)
    for portal in extra:
        what = f"portal {portal} of {target.name} is not configured"
        yield Drift(DriftKind.PORTAL, what)
    for portal in missing:
        yield Drift(DriftKind.PORTAL, f"portal {portal} of {target.name} is missing")
    if not target.enabled():
        yield Drift(DriftKind.TARGET, f"the target of {target.name} is disabled")
    yield from _of_disk(target, disk, wanted)


def _of_disk(target: Target, disk: Disk, wanted: Apply) -> Iterator[Drift]:
    try:
        status = os.stat(disk.path)
    except FileNotFoundError:
        yield Drift(DriftKind.TARGET, f"the disk of {target.name} is missing")
        return
    identity = backstores.disk_identity(status)
    reads = Mode.RO in [host.mode for host in wanted.export.connectors]
    for role in Role if reads else (Role.WRITERS,):
        if iscsi_target.lun_has_disk(target, disk, role, identity):
            yield from _of_backstore(target, disk, role, wanted)
        else:
            what = f"the LUN of the {role} of {target.name} is missing or outdated"
            yield Drift(DriftKind.TARGET, what)


def _of_backstore(
    target: Target, disk: Disk, role: Role, wanted: Apply
) -> Iterator[Drift]:
    path, of = target.backstore(role), f"of the {role} of {target.name}"
    if path is None:
        return
    attributes = dict(backstores.differing(path, disk, role))
    pr, allowed = "attrib/emulate_pr", str(int(wanted.export.reservations))
    if role is Role.WRITERS and read(f"{path}/{pr}") != allowed:
        attributes[pr] = allowed
    for name, value in attributes.items():
        live = read(f"{path}/{name}")
        what = f"{os.path.basename(name)} {of} is {live}, not {value}"
        yield Drift(DriftKind.ATTRIBUTE, what)
    if read_or_empty(target.lun(role) + repairs.OFFLINE) != "0":
        yield Drift(DriftKind.ATTRIBUTE, f"the LUN {of} is offline")


def _foreign(target: Target) -> Iterator[Drift]:
    """Yield what another program has added to the target, or made of its disks."""
    groups = [name for name in names(target.path) if name.startswith("tpgt_")]
    others = {f"{target.path}/{name}" for name in groups} - {target.group}
    luns = {f"{target.group}/lun/{name}" for name in names(target.group + "/lun")}
    ours = {target.lun(role) for role in Role} | {*filter(target.is_linked, luns)}
    for path in sorted(others | luns - ours):
        name = path.removeprefix(f"{target.path}/")
        yield Drift(DriftKind.FOREIGN, f"{target.iqn} has {name}, not of lunshare")
    paths = filter(None, (target.backstore(role) for role in Role))
    users = {user for path in paths for user in _users(path)}
    for user in sorted(users - {_name_of(target, lun) for lun in luns}):
        what = f"the disk of {target.name} is also exported as {user}, not by lunshare"
        yield Drift(DriftKind.FOREIGN, what)


def _name_of(target: Target, lun: str) -> str:
    """Return how the users of a backstore name a LUN of this target."""
    return f"iSCSI/{target.iqn}/tpgt_1/{os.path.basename(lun)}"


def _users(path: str) -> list[str]:
    """Return the LUNs of targets that a backstore is linked to, of any program.

    Each is FABRIC/TARGET/tpgt_N/lun_N. The kernel shows a page of them.
    """
    members = read_or_empty(path + "/alua/default_tg_pt_gp/members")
    return [member for member in re.split("[\n\0]", members) if member]
