# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Give a volume to another project, which proves with a key that it may take it.

Nothing but rows changes: no host has a volume that is offered.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid

from oslo_log import log

from lunshare.agent.db import snapshots, status_changes, transfers, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.project_records import Transfer
from lunshare.agent.model.quota_table import GIGABYTES, SNAPSHOTS, VOLUMES
from lunshare.agent.model.records import Page, RequestContext, Volume
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.volumes.rows import (
    changed_meanwhile,
    check_has_project,
    wrong_status,
)

LOG = log.getLogger(__name__)

_KEY_BYTES = 16  # random ones: a plain hash with a salt is enough for such a key


class Transfers:
    """The offers of this node's projects."""

    def __init__(self, db: Database, quotas: Quotas) -> None:
        self._db, self._quotas = db, quotas

    def get(self, ctx: RequestContext, transfer_id: str) -> Transfer:
        """Return one offer of the project, of any project to an administrator.

        :raises NotFound: the transfer does not exist, or is of another project.
        """
        with self._db.reading() as connection:
            return transfers.require(connection, transfer_id, ctx)

    def list(self, ctx: RequestContext, page: Page) -> PageRows[Transfer]:
        """Return a page of offers."""
        with self._db.reading() as connection:
            return transfers.page(connection, page)

    def create(
        self, ctx: RequestContext, volume_id: str, name: str | None, no_snapshots: bool
    ) -> tuple[Transfer, str]:
        """Offer a volume; return the offer and its key, which is not stored.

        :raises NotFound: the volume.
        :raises Invalid: it is not available, or a snapshot that goes with it is not.
        """
        key, salt = secrets.token_hex(_KEY_BYTES), secrets.token_hex(_KEY_BYTES)
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            if volume.status is not VolumeStatus.AVAILABLE:
                raise wrong_status(volume, "transferred", "available")
            if not no_snapshots:
                _check_snapshots(connection, volume)
            transfer = Transfer(
                id=str(uuid.uuid4()),
                volume_id=volume_id,
                name=name,
                salt=salt,
                key_hash=_hash(salt, key),
                no_snapshots=no_snapshots,
                source_project_id=volume.project_id,
                created_at=now(),
            )
            offered = VolumeStatus.AWAITING_TRANSFER
            if not status_changes.change_status(
                connection, volume, offered, unattached=True, uncloned=True
            ):
                raise changed_meanwhile(volume_id)
            transfers.insert(connection, transfer)
        return transfer, key

    def delete(self, ctx: RequestContext, transfer_id: str) -> None:
        """Withdraw an offer: the volume is available again.

        :raises NotFound: the transfer does not exist, or is of another project.
        """
        with self._db.writing() as connection:
            transfer = transfers.require(connection, transfer_id, ctx)
            _end(connection, transfer)

    def accept(self, ctx: RequestContext, transfer_id: str, key: str) -> Transfer:
        """Take an offered volume into the project of the caller.

        :raises NotFound: the transfer.
        :raises Invalid: the key is wrong, or the volume is not offered any more.
        :raises OverQuota: the project of the caller may not have so much.
        """
        check_has_project(ctx)
        with self._db.writing() as connection:
            transfer = transfers.require(connection, transfer_id)
            if not hmac.compare_digest(_hash(transfer.salt, key), transfer.key_hash):
                raise Invalid("accept.auth_key: it is not the key of this transfer.")
            _end(connection, transfer)
            transfers.change_owner(connection, transfer, ctx.project_id, ctx.user_id)
            self._check_quotas(connection, ctx.project_id, transfer)
        LOG.info(
            "[%s] volume transferred: volume=%s from=%s to=%s",
            ctx.request_id,
            transfer.volume_id,
            transfer.source_project_id,
            ctx.project_id,
        )
        return transfer

    def _check_quotas(
        self, connection: Connection, project_id: str, transfer: Transfer
    ) -> None:
        """Check what the project has now that the volume is its own.

        A snapshot counts for the type that the volume had when it was created.
        """
        volume_id = transfer.volume_id
        type_id = volumes.require(connection, volume_id).volume_type_id
        resources = [VOLUMES, GIGABYTES]
        if not transfer.no_snapshots:
            resources.append(SNAPSHOTS)
        self._quotas.check(connection, project_id, type_id, *resources)
        if transfer.no_snapshots:
            return
        former = snapshots.type_ids(connection, volume_id, project_id) - {type_id}
        for old_type in sorted(former):
            more = (SNAPSHOTS, GIGABYTES)
            self._quotas.check(connection, project_id, old_type, *more, totals=False)


def _end(connection: Connection, transfer: Transfer) -> None:
    """Delete the offer and make the volume available."""
    volume = volumes.require(connection, transfer.volume_id)
    if volume.own_status is not VolumeStatus.AWAITING_TRANSFER:
        raise wrong_status(volume, "transferred", "awaiting-transfer")
    if not status_changes.change_status(connection, volume, VolumeStatus.AVAILABLE):
        raise changed_meanwhile(volume.id)
    transfers.remove(connection, transfer.id)


def _check_snapshots(connection: Connection, volume: Volume) -> None:
    for row in snapshots.of_volume(connection, volume.id):
        if row.project_id != volume.project_id:
            continue  # it does not go with the volume
        if row.status is not SnapshotStatus.AVAILABLE:
            raise Invalid(
                f"transfer.volume_id: its snapshot {row.id} is {row.status}; it must be"
                " available, or give no_snapshots true."
            )


def _hash(salt: str, key: str) -> str:
    return hashlib.sha256(f"{salt}{key}".encode()).hexdigest()
