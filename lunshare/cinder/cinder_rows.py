# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What Cinder's database says of a volume's hosts, read each time.

Attachments are rows of ``volume_attachment``. Cinder also opens connections that have
no such row, to copy bytes or to back them up. These are stored here, in the volume's
administrator metadata, before they are opened: so a restart finds them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cinder import context, objects
from lunshare.cinder import chap_secrets
from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts
from lunshare.drivers import writers
from lunshare.drivers.values import Mode
from lunshare.drivers.writers import WritersPolicy

# Keys and values have up to 255 characters, and an iSCSI name has up to 223.
_DIRECT = "lunshare:direct:"


class CinderRows:
    """Reads and writes through Cinder's own objects and database API."""

    def __init__(self, database: Any) -> None:
        """``database`` is the module ``cinder.db`` that every driver gets."""
        self._database = database

    def of_volume(self, volume: Any) -> VolumeHosts:
        """Return the hosts of a volume, as the database has them now.

        Two queries, whatever the backend holds.

        :raises VolumeNotFound: Cinder's; the volume is deleted.
        """
        admin = context.get_admin_context()
        rows = objects.VolumeAttachmentList.get_all_by_volume_id(admin, volume.id)
        metadata = self._database.volume_admin_metadata_get(admin, volume.id)
        return _hosts(volume, rows, metadata)

    def writers_policy(self, volume: Any) -> WritersPolicy | None:
        """Return who may write, by the volume's metadata and its type's extra specs."""
        admin = context.get_admin_context()
        metadata = self._database.volume_metadata_get(admin, volume.id)
        specs = volume.volume_type.extra_specs if volume.volume_type else None
        return writers.policy(metadata, specs or {})

    def store_direct(self, volume: Any, initiator: str, mode: Mode) -> None:
        """Store a connection that has no attachment."""
        self._database.volume_admin_metadata_update(
            context.get_admin_context(),
            volume.id,
            {_DIRECT + initiator: str(mode)},
            False,
        )

    def forget_direct(self, volume: Any, initiators: Iterable[str]) -> None:
        """Forget such connections."""
        for initiator in initiators:
            self._database.volume_admin_metadata_delete(
                context.get_admin_context(), volume.id, _DIRECT + initiator
            )

    def host_of(self, volume_id: str) -> str | None:
        """Return the host@backend#pool of a volume, also of a deleted one."""
        admin = context.get_admin_context(read_deleted="yes")
        rows = objects.VolumeList.get_all(admin, filters={"id": volume_id})
        return next((str(row.host) for row in rows), None)

    def read_again(self, volumes: Iterable[Any]) -> list[Any]:
        """Return these volumes as they are now, without deleted ones: one query."""
        filters = {"id": sorted(volume.id for volume in volumes)}
        if not filters["id"]:
            return []
        rows = objects.VolumeList.get_all(context.get_admin_context(), filters=filters)
        return list(rows)

    def on_node(self, volume_ids: Iterable[str], node: str) -> set[str]:
        """Return which of these are volumes of a backend of that node: one query."""
        filters = {"id": sorted(volume_ids)}
        rows = objects.VolumeList.get_all(context.get_admin_context(), filters=filters)
        return {row.id for row in rows if node_of(str(row.host)) == node}


def has_direct(volume: Any) -> bool:
    """Whether a volume, as it was loaded, has a connection without an attachment."""
    return any(key.startswith(_DIRECT) for key in volume.admin_metadata)


def _hosts(
    volume: Any, rows: Iterable[Any], metadata: Mapping[str, str]
) -> VolumeHosts:
    return VolumeHosts(
        volume.name_id,
        volume.provider_auth,
        tuple(
            AttachmentRow(
                row.id,
                row.attach_status,
                row.attach_mode,
                row.connector,
                chap_secrets.of_connection(row.connection_info or {}),
                row.instance_uuid,
            )
            for row in rows
        ),
        {
            key.removeprefix(_DIRECT): Mode(value)
            for key, value in metadata.items()
            if key.startswith(_DIRECT)
        },
        metadata.get("readonly") == "True",
    )


def node_of(host: str) -> str:
    """Return the node in host@backend#pool."""
    return host.partition("@")[0]


def backend_of(host: str) -> str:
    """Return host@backend of host@backend#pool."""
    return host.partition("#")[0]
