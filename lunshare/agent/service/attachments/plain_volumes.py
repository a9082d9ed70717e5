# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A plain volume takes one attachment: is there another one, and the error then."""

from __future__ import annotations

from lunshare.agent.db import attachments
from lunshare.agent.db.sqlite.engine import Connection
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import Attachment, Volume
from lunshare.agent.model.states import AttachStatus, VolumeStatus


def check_single(connection: Connection, volume: Volume, row: Attachment) -> None:
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
    return not failed or row.initiator is not None or row.former_initiator is not None


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
