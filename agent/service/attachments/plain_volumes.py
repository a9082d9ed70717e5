# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""May a volume get an attachment: who asks, is there another one, the error then."""

from __future__ import annotations

from typing import Any

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import Attachment, RequestContext, Volume
from lunshare.agent.states import AttachStatus, VolumeStatus


def check_visible(db: Database, ctx: RequestContext, volume_id: str) -> None:
    """Check whose volume it is before its lock, whose error names what holds it.

    The transaction that decides checks it again.

    :raises NotFound: the volume does not exist, or belongs to another project.
    """
    if ctx.is_admin:
        return
    with db.reading(one_statement=True) as connection:
        volume = volumes.get_row(connection, volume_id)
    if volume is None or not ctx.sees(volume.project_id):
        raise NotFound("volume", volume_id)


def check_single(connection: Any, volume: Volume, row: Attachment) -> None:
    """Check that a row that is connected again has the volume for itself.

    A failed attachment does not reserve its volume, so there may be another one.

    :raises Invalid: there is.
    """
    if volume.multiattach:
        return
    others = [
        other
        for other in attachments.of_volume(connection, volume.id)
        if other.id != row.id and reserves(other)
    ]
    instances = {other.instance_uuid for other in others} - {None}
    if others and row.instance_uuid not in instances:
        raise attach_error(volume)


def reserves(row: Attachment) -> bool:
    """Whether this row reserves a volume that takes one attachment.

    As in lunshare.agent.db.volumes.claim: an access may be open, or will be.
    """
    failed = row.status is AttachStatus.ERROR_ATTACHING
    return not failed or row.initiator is not None or row.leaving is not None


def attach_error(volume: Volume) -> Invalid:
    """Return why a volume cannot be reserved."""
    if volume.own_status is not VolumeStatus.AVAILABLE:
        return Invalid(
            f"Invalid volume: volume {volume.id} is {volume.status} and cannot be"
            " attached; it must be available"
        )
    return Invalid(
        f"Invalid volume: volume {volume.id} is {volume.status} and takes one"
        " attachment only; detach it first, or use a volume whose type has the"
        " extra spec multiattach='<is> True'"
    )
