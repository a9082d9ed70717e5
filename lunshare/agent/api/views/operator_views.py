# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Records that operators see, as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from lunshare.agent.model.operator_records import (
    HostAccess,
    Orphan,
    Verdict,
    Verification,
)
from lunshare.agent.model.qos_table import QosSpecs
from lunshare.agent.model.quota_table import Quota
from lunshare.agent.model.records import ServiceState
from lunshare.agent.service.attachments.fencing import FencedAccess, HostFence

View = dict[str, Any]


def host(host_access: HostAccess) -> View:
    """Show the access of one host to one volume, in the rows and in the target."""
    return {
        "volume_id": host_access.volume_id,
        "volume_name": host_access.volume_name,
        "backend": host_access.backend,
        "host": host_access.host,
        "initiator": host_access.initiator,
        "attachment_id": host_access.attachment_id,
        "mode": host_access.mode,
        "status": host_access.status,
        "allowed": host_access.allowed,
        "sessions": host_access.sessions,
        "addresses": list(host_access.addresses or ()),
        "refused_mib": host_access.refused_mib,
        "reservation_keys": list(host_access.reservation_keys),
        "reservation": host_access.reservation,
        "fence": host_access.fence,
        "verified_at": _time(host_access.verified_at),
        "problem": host_access.problem or None,
        "lease": host_access.lease and asdict(host_access.lease),
    }


def verification(found: Sequence[Verification]) -> View:
    """Show how many targets were compared, and each that is not as it should be."""
    counts = Counter(target.verdict.value for target in found)
    shown = [target for target in found if target.verdict is not Verdict.CLEAN]
    return {
        "counts": {verdict.value: counts[verdict.value] for verdict in Verdict},
        "targets": [_target(target) for target in shown],
    }


def _target(target: Verification) -> View:
    return {
        "volume_id": target.volume_id,
        "status": target.verdict,
        "compared_at": _time(target.at),
        "drift": [
            {
                "kind": drift.kind,
                "initiator": drift.initiator,
                "what": drift.what,
                "left": drift in target.remaining,
            }
            for drift in target.drift
        ],
        "problem": target.problem or None,
    }


def fence(host_fence: HostFence) -> View:
    """Show what is taken from a host, with the proof for each volume."""
    return {
        "host": host_fence.host,
        "fence": host_fence.fence,
        "status": host_fence.status,
        "since": _time(host_fence.since),
        "initiators": host_fence.names,
        "volumes": [_fenced(host_fence, access) for access in host_fence.volumes],
    }


def _fenced(host_fence: HostFence, access: FencedAccess) -> View:
    row = access.row
    end, pending = (
        ("fenced", "fence pending") if host_fence.fence else ("open", "pending")
    )
    return {
        "volume_id": row.volume_id,
        "attachment_id": row.id,
        "host": row.attached_host,
        "initiator": row.initiator or row.former_initiator,
        "mode": row.mode,
        "status": pending if access.reason else end,
        "fenced_at": _time(row.fenced_at),
        "fencing_generation": access.generation,
        "reason": access.reason,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds")


def orphan(orphan: Orphan) -> View:
    """Show an export, disk or snapshot of lunshare that has no row."""
    return {
        "kind": orphan.kind,
        "id": orphan.id,
        "backend": orphan.backend,
        "where": orphan.where,
    }


def quotas(quotas: Iterable[Quota], ident: str | None = None) -> View:
    """Show the limits of a quota set by their keys, with the id of its project."""
    pairs: list[tuple[str, Any]] = [(quota.key, quota.limit) for quota in quotas]
    return dict(pairs if ident is None else [("id", ident), *pairs])


def quota_usage(quotas: Iterable[Quota], ident: str) -> View:
    """Show limits and usage. Nothing is reserved: a row counts from its commit on."""
    pairs: list[tuple[str, Any]] = [
        (quota.key, {"limit": quota.limit, "in_use": quota.in_use, "reserved": 0})
        for quota in quotas
    ]
    return dict([("id", ident), *pairs])


_LIMITS = (
    ("volumes", "maxTotalVolumes", "totalVolumesUsed"),
    ("gigabytes", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
    ("snapshots", "maxTotalSnapshots", "totalSnapshotsUsed"),
    ("backups", "maxTotalBackups", "totalBackupsUsed"),
    ("backup_gigabytes", "maxTotalBackupGigabytes", "totalBackupGigabytesUsed"),
)


def limits(rows: Iterable[Quota], with_use: bool) -> View:
    """Show the absolute limits of a project; ``with_use`` also what it uses."""
    quotas = {quota.key: quota for quota in rows}
    largest = {most: quotas[key].limit for key, most, _ in _LIMITS}
    if not with_use:
        return largest
    return {**largest, **{used: quotas[key].in_use for key, _, used in _LIMITS}}


def type_access(type_id: str, project: str) -> View:
    """Show that a project may use a private volume type."""
    return {"volume_type_id": type_id, "project_id": project}


def default_type(project: str, type_id: str) -> View:
    """Show the default volume type of a project."""
    return {"project_id": project, "volume_type_id": type_id}


def qos(qos_specs: QosSpecs) -> View:
    """Show QoS specs."""
    return {
        "id": qos_specs.id,
        "name": qos_specs.name,
        "consumer": qos_specs.consumer,
        "specs": dict(qos_specs.specs),
    }


def qos_association(type_id: str, name: str) -> View:
    """Show a volume type that has QoS specs."""
    return {"association_type": "volume_type", "id": type_id, "name": name}


def zone(name: str, is_open: bool) -> View:
    """Show an availability zone."""
    return {"zoneName": name, "zoneState": {"available": is_open}}


def service_host(service_state: ServiceState) -> View:
    """Show a service in the list of hosts."""
    return {
        "host_name": service_state.host,
        "service": service_state.binary,
        "zone": service_state.zone,
        "service-status": "available" if service_state.up else "unavailable",
        "service-state": "enabled" if service_state.enabled else "disabled",
        "last-update": service_state.updated_at.isoformat(timespec="microseconds"),
    }


def host_totals(host: str, project: str, counts: Sequence[int]) -> View:
    """Show what a project has on a backend. Numbers are texts, as in Cinder."""
    volumes, gigabytes, snapshots, snapshot_gigabytes = map(str, counts)
    return {
        "host": host,
        "project": project,
        "volume_count": volumes,
        "total_volume_gb": gigabytes,
        "snapshot_count": snapshots,
        "total_snapshot_gb": snapshot_gigabytes,
    }


def extension(alias: str, name: str, what: str) -> View:
    """Show an extension of the API. They change no more since API v3."""
    return {
        "alias": alias,
        "name": name,
        "description": what,
        "updated": "2016-01-01T00:00:00+00:00",
        "links": [],
    }


def log_levels(binary: str, host: str, levels: Mapping[str, str]) -> View:
    """Show the log levels of one service."""
    return {"binary": binary, "host": host, "levels": dict(levels)}
