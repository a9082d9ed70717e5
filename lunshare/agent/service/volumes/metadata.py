# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Metadata, image metadata, and the two flags of a volume. No storage is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Invalid, existing
from lunshare.agent.model.records import RequestContext, Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments import access
from lunshare.agent.service.attachments.plain_volumes import reserves
from lunshare.agent.service.volumes.rows import wrong_status
from lunshare.drivers import writers

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class VolumeMetadata:
    """Reads and writes in one transaction, so that no change of another is lost."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def change(
        self, ctx: RequestContext, volume_id: str, change: Change
    ) -> Mapping[str, str]:
        """Write what ``change`` returns for the present metadata, and return it.

        :raises NotFound: the volume.
        :raises Invalid: it is in maintenance, or its writers policy has no meaning.
        :raises Conflict: hosts may write that this policy would exclude.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            check_not_in_maintenance(volume)
            changed = dict(change(volume.metadata))
            volumes.update(connection, volume_id, {"metadata": changed})
            check_writers(connection, volume, changed)
        return changed

    def change_image(
        self, ctx: RequestContext, volume_id: str, items: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Add or replace items of the image metadata; return all of it.

        :raises NotFound: the volume.
        :raises Invalid: it is in maintenance.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            check_not_in_maintenance(volume)
            changed = {**volume.image_metadata, **items}
            volumes.set_values(connection, volume_id, image_metadata=changed)
        return changed

    def delete_image_item(self, ctx: RequestContext, volume_id: str, key: str) -> None:
        """Delete one item of the image metadata.

        :raises NotFound: the volume, or the item.
        :raises Invalid: it is in maintenance.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            check_not_in_maintenance(volume)
            metadata = dict(volume.image_metadata)
            existing(metadata.pop(key, None), "image metadata item", key[:64])
            volumes.set_values(connection, volume_id, image_metadata=metadata)

    def set_bootable(self, ctx: RequestContext, volume_id: str, bootable: bool) -> None:
        """Set whether a server can boot from it.

        :raises NotFound: the volume.
        """
        with self._db.writing() as connection:
            volumes.require(connection, volume_id, ctx)
            volumes.set_values(connection, volume_id, bootable=bootable)

    def set_readonly(self, ctx: RequestContext, volume_id: str, readonly: bool) -> None:
        """Set whether every attachment from now on is read-only at the target.

        :raises NotFound: the volume.
        :raises Invalid: it is not available: it has attachments, which keep their
            modes; or a failed one, whose access may still be open.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            _check_unused(connection, volume)
            volumes.set_values(connection, volume_id, readonly=readonly)


def check_not_in_maintenance(volume: Volume) -> None:
    """Check that a volume may be changed.

    :raises Invalid: it is in maintenance, as during a migration.
    """
    if volume.own_status is VolumeStatus.MAINTENANCE:
        raise wrong_status(volume, "changed", "in another status")


def check_writers(
    connection: Connection, volume: Volume, metadata: Mapping[str, str]
) -> None:
    """Check that new metadata excludes no host that may write now.

    :raises Conflict: it does.
    """
    if any(volume.metadata.get(key) != metadata.get(key) for key in writers.KEYS):
        access.check_writers(connection, replace(volume, metadata=metadata))


def _check_unused(connection: Connection, volume: Volume) -> None:
    if volume.status is not VolumeStatus.AVAILABLE:
        raise wrong_status(volume, "made readonly or writable", "available")
    for row in attachments.of_volume(connection, volume.id):
        if reserves(row):
            raise Invalid(
                f"Invalid volume: the access of attachment {row.id}, whose attach"
                " failed, may still be open; delete that attachment first"
            )
