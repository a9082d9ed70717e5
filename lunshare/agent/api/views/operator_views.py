# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Records that operators see, as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lunshare.agent.model.operator_records import HostAccess, Orphan
from lunshare.agent.model.qos_table import QosSpecs
from lunshare.agent.model.quota_table import Quota
from lunshare.agent.model.records import ServiceState

View = dict[str, Any]


def host(shown: HostAccess) -> View:
    """Show the access of one host to one volume, in the rows and in the target."""
    return {
        "volume_id": shown.volume_id,
        "volume_name": shown.volume_name,
        "backend": shown.backend,
        "host": shown.host,
        "initiator": shown.initiator,
        "attachment_id": shown.attachment_id,
        "mode": shown.mode,
        "status": shown.status,
        "allowed": shown.allowed,
        "sessions": shown.sessions,
        "addresses": list(shown.addresses),
        "problem": shown.problem or None,
    }


def orphan(shown: Orphan) -> View:
    """Show an export, disk or snapshot of lunshare that has no row."""
    return {
        "kind": shown.kind,
        "id": shown.id,
        "backend": shown.backend,
        "where": shown.where,
    }


def quotas(shown: Iterable[Quota], ident: str | None = None) -> View:
    """Show the limits of a quota set by their keys, with the id of its project."""
    pairs: list[tuple[str, Any]] = [(each.key, each.limit) for each in shown]
    return dict(pairs if ident is None else [("id", ident), *pairs])


def quota_usage(shown: Iterable[Quota], ident: str) -> View:
    """Show limits and usage. Nothing is reserved: a row counts from its commit on."""
    pairs: list[tuple[str, Any]] = [
        (each.key, {"limit": each.limit, "in_use": each.in_use, "reserved": 0})
        for each in shown
    ]
    return dict([("id", ident), *pairs])


_LIMITS = (
    ("volumes", "maxTotalVolumes", "totalVolumesUsed"),
    ("gigabytes", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
    ("snapshots", "maxTotalSnapshots", "totalSnapshotsUsed"),
    ("backups", "maxTotalBackups", "totalBackupsUsed"),
    ("backup_gigabytes", "maxTotalBackupGigabytes", "totalBackupGigabytesUsed"),
)


def limits(shown: Iterable[Quota], with_use: bool) -> View:
    """Show the absolute limits of a project; ``with_use`` also what it uses."""
    found = {each.key: each for each in shown}
    largest = {most: found[key].limit for key, most, _ in _LIMITS}
    if not with_use:
        return largest
    return {**largest, **{used: found[key].in_use for key, _, used in _LIMITS}}


def type_access(type_id: str, project: str) -> View:
    """Show that a project may use a private volume type."""
    return {"volume_type_id": type_id, "project_id": project}


def default_type(project: str, type_id: str) -> View:
    """Show the default volume type of a project."""
    return {"project_id": project, "volume_type_id": type_id}


def qos(shown: QosSpecs) -> View:
    """Show QoS specs."""
    return {
        "id": shown.id,
        "name": shown.name,
        "consumer": shown.consumer,
        "specs": dict(shown.specs),
    }


def qos_association(type_id: str, name: str) -> View:
    """Show a volume type that has QoS specs."""
    return {"association_type": "volume_type", "id": type_id, "name": name}


def zone(name: str, is_open: bool) -> View:
    """Show an availability zone."""
    return {"zoneName": name, "zoneState": {"available": is_open}}


def service_host(shown: ServiceState) -> View:
    """Show a service in the list of hosts."""
    return {
        "host_name": shown.host,
        "service": shown.binary,
        "zone": shown.zone,
        "service-status": "available" if shown.up else "unavailable",
        "service-state": "enabled" if shown.enabled else "disabled",
        "last-update": shown.updated_at.isoformat(timespec="microseconds"),
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
