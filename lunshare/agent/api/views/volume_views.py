# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Records as the API shows them: dictionaries, one function per resource.

Keys and microversions are those of the Block Storage API v3. A page has up to a
thousand volumes, so what they have in common is computed once (``ViewContext``).
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.model.operator_records import HostAccess, WipeState
from lunshare.agent.model.project_records import Message, Transfer
from lunshare.agent.model.records import (
    Attachment,
    Manageable,
    ManageableSnapshot,
    NamedVolume,
    Pool,
    ServiceState,
    Snapshot,
    Volume,
)
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus
from lunshare.agent.service.attachments import lease_terms
from lunshare.agent.service.attachments.mode_change import ModeChange

View = dict[str, Any]
#: Where a volume is: a host, a service; None where no pool could hold it.
Location = tuple[str | None, str | None]

# Fields with the same value for every volume: first microversion, key, value.
_CONSTANTS: tuple[tuple[Version, str, Any], ...] = (
    ((3, 0), "encrypted", False),
    ((3, 0), "replication_status", None),
    ((3, 0), "consistencygroup_id", None),
    ((3, 0), "os-vol-mig-status-attr:name_id", None),
    ((3, 13), "group_id", None),
    ((3, 21), "provider_id", None),
    # Each volume has its own target, so hosts need no lock between two volumes.
    ((3, 48), "shared_targets", False),
    ((3, 61), "cluster_name", None),
    ((3, 65), "consumes_quota", True),
)
#: Fields that Cinder shows for GET, but not in the answer to a create or an update,
#: where Tempest's schemas refuse them.
ONLY_SHOWN = frozenset(
    {
        "os-vol-host-attr:host",
        "os-vol-tenant-attr:tenant_id",
        "os-vol-mig-status-attr:migstat",
        "os-vol-mig-status-attr:name_id",
        "volume_image_metadata",
    }
)
#: Clients see a creation instead of a volume being managed, as in Cinder.
MASKED = {
    VolumeStatus.MANAGING: VolumeStatus.CREATING,
    VolumeStatus.ERROR_MANAGING: VolumeStatus.ERROR,
}
_MASKED_SNAPSHOT = {SnapshotStatus.MANAGING: SnapshotStatus.CREATING}
# Cinder has no such field. Clients of an older version may know no others than
# Cinder's: Tempest shows volumes in error at 3.0 and 3.3, and refuses it.
_STATUS_REASON: Version = (3, 27)
_SERVICE_UUID: Version = (3, 48)
_TYPE_ID: Version = (3, 63)


@dataclass(slots=True)
class ViewContext:
    """What all volumes of one answer have in common.

    ``root`` and ``project`` are those of lunshare.agent.api.exchange.Call; ``host_of``
    returns the host@backend#pool of a backend's name. ``hidden`` are fields that the
    client may not see; without ``names_hosts`` it sees no name of an attached host.
    """

    version: Version
    root: str
    project: str
    host_of: Callable[[str], str]
    hidden: frozenset[str] = frozenset()
    names_hosts: bool = True
    _hosts: dict[str, Location] = field(init=False, default_factory=dict)

    def links(self, volume_id: str) -> list[View]:
        """Return the URLs of the volume, with and without the version."""
        path = f"{self.project}/volumes/{volume_id}"
        return [
            {"rel": "self", "href": f"{self.root}/v3{path}"},
            {"rel": "bookmark", "href": f"{self.root}{path}"},
        ]

    def location(self, backend: str) -> Location:
        """Return host@backend#pool, and the id of its service."""
        if not backend:
            return None, None
        if backend not in self._hosts:
            host = self.host_of(backend)
            self._hosts[backend] = (host, _service(host.partition("#")[0]))
        return self._hosts[backend]


@functools.cache
def _constants(version: Version) -> View:
    return {key: value for since, key, value in _CONSTANTS if version >= since}


@functools.cache
def _service(host: str) -> str:
    """Return the id of the service on host@backend. Each backend has one."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, host))


def volume(volume: Volume, context: ViewContext) -> View:
    """Show a volume in full."""
    host, service = context.location(volume.backend)
    view = {
        "id": volume.id,
        "status": MASKED.get(volume.status, volume.status),
        "size": volume.size,
        "availability_zone": volume.availability_zone,
        "created_at": _time(volume.created_at),
        "updated_at": _time(volume.updated_at),
        "name": volume.name,
        "description": volume.description,
        "volume_type": volume.volume_type,
        "snapshot_id": volume.snapshot_id,
        "source_volid": volume.source_volid,
        "migration_status": volume.migration_status,
        "os-vol-mig-status-attr:migstat": volume.migration_status,
        "metadata": _metadata(volume),
        "links": context.links(volume.id),
        "user_id": volume.user_id,
        "bootable": "true" if volume.bootable else "false",
        "multiattach": volume.multiattach,
        "attachments": [
            _attached(row, context.names_hosts)
            for row in volume.attachments
            if row.status is AttachStatus.ATTACHED
        ],
        "os-vol-tenant-attr:tenant_id": volume.project_id,
        "os-vol-host-attr:host": host,
    }
    view.update(_constants(context.version))
    if volume.image_metadata:
        view["volume_image_metadata"] = dict(volume.image_metadata)
    if volume.status_reason is not None and context.version >= _STATUS_REASON:
        view["status_reason"] = volume.status_reason
    if context.version >= _SERVICE_UUID:
        view["service_uuid"] = service
    if context.version >= _TYPE_ID:
        view["volume_type_id"] = volume.volume_type_id
    for key in context.hidden:
        view.pop(key, None)
    return view


def _metadata(volume: Volume) -> View:
    """Show metadata with the readonly flag, which clients read there."""
    flag = {} if volume.readonly is None else {"readonly": str(volume.readonly)}
    return {**volume.metadata, **flag}


def stored_volume(row: Volume, context: ViewContext) -> View:
    """Show a volume as create and update return it."""
    view = volume(row, context)
    return {key: value for key, value in view.items() if key not in ONLY_SHOWN}


def volume_brief(volume: Volume | NamedVolume, context: ViewContext) -> View:
    """Show a volume in a list without detail."""
    return {"id": volume.id, "name": volume.name, "links": context.links(volume.id)}


def _attached(row: Attachment, names_hosts: bool) -> View:
    """Show an attached host in the list of a volume.

    Nova decides by this list whether another of its instances still needs the
    session (nova.virt.libvirt.driver, _should_disconnect_target).
    """
    return {
        "id": row.volume_id,
        "attachment_id": row.id,
        "volume_id": row.volume_id,
        "server_id": row.instance_uuid,
        "host_name": row.attached_host if names_hosts else None,
        "device": row.mountpoint,
        "attached_at": _time(row.attach_time),
    }


def snapshot_brief(snapshot: Snapshot, version: Version) -> View:
    """Show a snapshot in a list without detail, with the fields that Cinder has."""
    return {
        "id": snapshot.id,
        "created_at": _time(snapshot.created_at),
        "updated_at": _time(snapshot.updated_at),
        "name": snapshot.name,
        "description": snapshot.description,
        "volume_id": snapshot.volume_id,
        "status": _MASKED_SNAPSHOT.get(snapshot.status, snapshot.status),
        "size": snapshot.size,
        "metadata": dict(snapshot.metadata),
    }


def snapshot(snapshot: Snapshot, version: Version) -> View:
    """Show a snapshot as create and update return it."""
    view = snapshot_brief(snapshot, version)
    later: tuple[tuple[Version, str, Any], ...] = (
        ((3, 14), "group_snapshot_id", None),
        ((3, 41), "user_id", snapshot.user_id),
        ((3, 65), "consumes_quota", True),
    )
    view.update({key: value for since, key, value in later if version >= since})
    return view


def snapshot_shown(row: Snapshot, version: Version) -> View:
    """Show a snapshot in full."""
    progress = "100%" if row.status is SnapshotStatus.AVAILABLE else "0%"
    why = row.status_reason if version >= _STATUS_REASON else None
    return {
        **({} if why is None else {"status_reason": why}),
        **snapshot(row, version),
        "os-extended-snapshot-attributes:project_id": row.project_id,
        "os-extended-snapshot-attributes:progress": row.progress or progress,
    }


def attachment_brief(attachment: Attachment) -> View:
    """Show an attachment in a list without detail."""
    return {
        "id": attachment.id,
        "status": attachment.status,
        "instance": attachment.instance_uuid,
        "volume_id": attachment.volume_id,
    }


def attachment(attachment: Attachment) -> View:
    """Show an attachment in full. Its connection_info is flat.

    The old actions nest it in ``data``; os-brick and Nova read both forms.
    """
    why = attachment.status_reason
    return {
        **({} if why is None else {"status_reason": why}),
        **_fence(attachment),
        **attachment_brief(attachment),
        "attached_at": _time(attachment.attach_time),
        "detached_at": _time(attachment.detach_time),
        "attach_mode": attachment.mode,
        "connection_info": dict(attachment.connection_info or {}),
        **_lease(attachment),
    }


def live(access: HostAccess | None, names_hosts: bool) -> View:
    """Show what the target says of the host of an attachment at this moment.

    Without ``names_hosts`` a client does not see where a host logs in from.
    """
    if access is None:
        return {"live": None}
    shown = access.addresses if names_hosts else None
    return {
        "live": {
            "allowed": access.allowed,
            "sessions": access.sessions,
            "addresses": None if shown is None else list(shown),
            "refused_mib": access.refused_mib,
            "fence": access.fence,
            "verified_at": _time(access.verified_at),
            "problem": access.problem or None,
        }
    }


def _lease(attachment: Attachment) -> View:
    if attachment.lease is None:
        return {}
    state = lease_terms.state(attachment)
    return {"lease": state and asdict(state)}


def _fence(attachment: Attachment) -> View:
    if attachment.is_fencing:
        return {"fence": "fence pending"}
    return {"fence": "fenced"} if attachment.is_fenced else {}


_RESCAN = "iscsiadm -m session --rescan, then blockdev --getro DEVICE"


def mode_change(changed: ModeChange) -> View:
    """Show how a change of mode ended, and what the host has to do."""
    if changed.row.mode != "ro":
        host_must = f"run {_RESCAN}, which prints 0; then remount rw what it mounted"
        return {"host_must": host_must}
    host_must = (
        "have unmounted, or mounted ro, what it wrote, since its writes fail now; run"
        f" {_RESCAN}, which prints 1 when its session is back"
    )
    if changed.pending is None:
        return {"fence": "fenced", "host_must": host_must}
    why = f"writes of the host may still land: {changed.pending}"
    return {"fence": "fence pending", "fence_reason": why, "host_must": host_must}


_PROTOCOL = "driver_volume_type"


def nested_info(attachment: Attachment) -> View:
    """Show connection_info as os-initialize_connection returns it."""
    info = dict(attachment.connection_info or {})
    data = {key: value for key, value in info.items() if key != _PROTOCOL}
    return {"driver_volume_type": info.get(_PROTOCOL), "data": data}


_VOLUME_SERVICE = "cinder-volume"


def service(service_state: ServiceState, version: Version) -> View:
    """Show one service in the list of os-services."""
    state = "up" if service_state.up else "down"
    view: View = {
        "binary": service_state.binary,
        "host": service_state.host,
        "zone": service_state.zone,
        "status": "enabled" if service_state.enabled else "disabled",
        "state": state,
        "updated_at": _time(service_state.updated_at),
        "disabled_reason": service_state.disabled_reason,
    }
    if version >= (3, 7):
        view["cluster"] = None
    if service_state.binary == _VOLUME_SERVICE:
        view.update(replication_status="disabled", active_backend_id=None)
        view["frozen"] = service_state.frozen
        if version >= (3, 49):
            view["backend_state"] = state
    return view


def changed_service(service_state: ServiceState) -> View:
    """Show a service as enable and disable return it."""
    view: View = {
        "host": service_state.host,
        "service": service_state.binary,
        "binary": service_state.binary,
        "status": "enabled" if service_state.enabled else "disabled",
        "disabled": not service_state.enabled,
    }
    if service_state.disabled_reason is not None:
        view["disabled_reason"] = service_state.disabled_reason
    return view


def pools(pools: Iterable[Pool], detail: bool) -> list[View]:
    """Show the pools that a scheduler may choose."""
    if not detail:
        return [{"name": pool.name} for pool in pools]
    return [
        {"name": pool.name, "capabilities": dict(pool.capabilities)} for pool in pools
    ]


def manageable_brief(disk: Manageable | ManageableSnapshot) -> View:
    """Show a foreign disk, or a snapshot with its volume, that may be managed."""
    view: View = {
        "reference": {"source-name": disk.reference},
        "size": disk.gib,
        "safe_to_manage": not disk.problem,
    }
    if isinstance(disk, ManageableSnapshot):
        view["source_reference"] = {"source-name": f"volume-{disk.volume_id}"}
    return view


def manageable(disk: Manageable | ManageableSnapshot) -> View:
    """Show the same in full, with the reason if it cannot be managed."""
    return {
        **manageable_brief(disk),
        "reason_not_safe": disk.problem or None,
        "cinder_id": None,
        "extra_info": None,
    }


def wipe(wipe_state: WipeState) -> View:
    """Show a deleted disk that is being wiped; sizes are in bytes."""
    return {
        "name": wipe_state.name,
        "backend": wipe_state.backend,
        "size": wipe_state.size,
        "left": wipe_state.left,
        "percent": wipe_state.percent,
    }


def message(message: Message, base: str) -> View:
    """Show a user message; ``base`` is the start of every URL of the client."""
    href = f"{base}/messages/{message.id}"
    view: View = {
        "id": message.id,
        "event_id": message.event_id,
        "user_message": message.user_message,
        "message_level": message.message_level,
        "created_at": _time(message.created_at),
        "guaranteed_until": _time(message.expires_at),
        "request_id": message.request_id,
        "links": [{"rel": "self", "href": href}, {"rel": "bookmark", "href": href}],
    }
    of = {
        "resource_type": message.resource_type,
        "resource_uuid": message.resource_uuid,
    }
    return view | {key: text for key, text in of.items() if text}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds")


def transfer_brief(transfer: Transfer, base: str) -> View:
    """Show an offer in a list; ``base`` is the start of every URL of the client."""
    href = f"{base}/volume-transfers/{transfer.id}"
    return {
        "id": transfer.id,
        "name": transfer.name,
        "volume_id": transfer.volume_id,
        "links": [{"rel": "self", "href": href}, {"rel": "bookmark", "href": href}],
    }


def transfer(transfer: Transfer, version: Version, base: str) -> View:
    """Show an offer in full, without its key. One that was taken is deleted."""
    later: tuple[tuple[Version, str, Any], ...] = (
        (microversions.TRANSFER_SNAPSHOTS, "no_snapshots", transfer.no_snapshots),
        (
            microversions.TRANSFER_HISTORY,
            "source_project_id",
            transfer.source_project_id,
        ),
        (microversions.TRANSFER_HISTORY, "destination_project_id", None),
        (microversions.TRANSFER_HISTORY, "accepted", False),
    )
    return {
        **transfer_brief(transfer, base),
        "created_at": transfer.created_at.isoformat(timespec="microseconds"),
        **{key: value for since, key, value in later if version >= since},
    }
