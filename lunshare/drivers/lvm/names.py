# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The names of lunshare's logical volumes. One with another name is foreign.

===============================  ==============================================
``volume-<uuid>``                a volume
``volume-<uuid>.new``, ``.tail``  incomplete parts of a thick volume; see thick
``volume-<uuid>.revert``         the next bytes of a thin one; see thin_snapshots
``_snapshot-<uuid>``             a snapshot
``deleted-<uuid>.<bytes>``       a deleted thick volume to wipe, and its full size
``unmanaged-<uuid>``             a volume or a snapshot that was unmanaged: foreign
                                 (or a new thin one that had bytes; see thin)
===============================  ==============================================
"""

from __future__ import annotations

import re
import uuid

from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import UUID, Volume

NEW, TAIL, REVERT = PARTS = ".new", ".tail", ".revert"

_VOLUME = re.compile(f"volume-({UUID})")
_SNAPSHOT = re.compile(f"_snapshot-({UUID})")
_DELETED = re.compile(rf"deleted-{UUID}\.([0-9]+)")
_LUNSHARE = re.compile(
    rf"volume-{UUID}(\.(new|tail|revert))?|_snapshot-{UUID}|deleted-{UUID}\.[0-9]+"
)
# lvm(8), "VALID NAMES". 127 is what fits beside a group's name of that length.
_ANY = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}")


def volume_id(name: str) -> str | None:
    """Return the id of the volume of that name; None if it is not a volume's name."""
    match = _VOLUME.fullmatch(name)
    return match[1] if match else None


def snapshot_id(name: str) -> str | None:
    """Return the id of the snapshot of that name; None if it is not a snapshot's."""
    match = _SNAPSHOT.fullmatch(name)
    return match[1] if match else None


def deleted_name(size: int) -> str:
    """Return a new name for a deleted volume of ``size`` bytes."""
    return f"deleted-{uuid.uuid4()}.{size}"


def deleted_size(name: str) -> int | None:
    """Return its size in bytes when it was deleted; None if it is another name."""
    match = _DELETED.fullmatch(name)
    return int(match[1]) if match else None


def name_conflict(volume: Volume, group: str, pool: str) -> Unsupported:
    """Return the error for a name that another backend of the group uses."""
    where = f"thin pool {pool}" if pool else "every thin pool"
    return Unsupported(
        f"volume {volume.id} in volume group {group}",
        f"logical volume {volume.name} exists already, outside of {where}: use a"
        " backend in another volume group",
    )


def created_by_lunshare(name: str) -> bool:
    """Whether lunshare gave that name."""
    return _LUNSHARE.fullmatch(name) is not None


def is_valid(name: str) -> bool:
    """Whether LVM accepts that name."""
    return _ANY.fullmatch(name) is not None and name not in (".", "..")
