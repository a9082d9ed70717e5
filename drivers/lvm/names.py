# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The names of our logical volumes. Whatever has another one is somebody else's.

===============================  ==============================================
``volume-<uuid>``                a volume
``volume-<uuid>.new``, ``.tail``  half-made parts of a thick one; see thick
``volume-<uuid>.revert``         what a thin one is about to become; see thin_copies
``_snapshot-<uuid>``             a snapshot
``deleted-<uuid>.<bytes>``       a thick volume to be wiped, and its first size
``unmanaged-<uuid>``             a volume that was given away: not ours any more
===============================  ==============================================
"""

from __future__ import annotations

import re
import uuid

from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import Volume, volume_uuid

NEW, TAIL, REVERT = PARTS = ".new", ".tail", ".revert"

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VOLUME = re.compile(f"volume-({_UUID})")
_SNAPSHOT = re.compile(f"_snapshot-({_UUID})")
_DELETED = re.compile(rf"deleted-{_UUID}\.([0-9]+)")
_OURS = re.compile(
    rf"volume-{_UUID}(\.(new|tail|revert))?|_snapshot-{_UUID}|deleted-{_UUID}\.[0-9]+"
)
# lvm(8), "VALID NAMES". 127 is what fits beside a group's name of that length.
_ANY = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}")


def volume_id(name: str) -> str | None:
    """The id of the volume of that name; None if it names something else."""
    found = _VOLUME.fullmatch(name)
    return found[1] if found else None


def snapshot(snapshot_id: str) -> str:
    """The name of a snapshot.

    :raises InvalidValue: the id is no UUID.
    """
    return f"_snapshot-{volume_uuid(snapshot_id, 'snapshot id')}"


def snapshot_id(name: str) -> str | None:
    """The id of the snapshot of that name; None if it names something else."""
    found = _SNAPSHOT.fullmatch(name)
    return found[1] if found else None


def deleted(size: int) -> str:
    """A name that nothing had before, for a volume of so many bytes."""
    return f"deleted-{uuid.uuid4()}.{size}"


def deleted_size(name: str) -> int | None:
    """The bytes that it had when it was deleted; None if it was not."""
    found = _DELETED.fullmatch(name)
    return int(found[1]) if found else None


def taken(volume: Volume, group: str, pool: str) -> Unsupported:
    """The name is another backend's in the same volume group."""
    where = f"thin pool {pool}" if pool else "every thin pool"
    return Unsupported(
        f"volume {volume.id} in volume group {group}",
        f"logical volume {volume.name} is there already, outside of {where}: use a"
        " backend in another volume group",
    )


def ours(name: str) -> bool:
    """Whether we gave that name."""
    return _OURS.fullmatch(name) is not None


def valid(name: str) -> bool:
    """Whether LVM can have something of that name."""
    return _ANY.fullmatch(name) is not None and name not in (".", "..")
