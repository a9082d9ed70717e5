# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Move a volume's bytes between two backends of the node, by the root helper."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from lunshare.drivers.base import Root
from lunshare.drivers.errors import (
    CopyDiffers,
    HelperRefused,
    TargetFailed,
    Unsupported,
)
from lunshare.drivers.values import Disk

#: Of every driver whose bytes the helper copies or writes.
OPTIONS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "progress_timeout",
        default=120.0,
        min=1.0,
        help="Seconds in which a copy, a wipe or the filling of a new disk may come no"
        " further before it is taken for hung and fails; as long as it goes on it may"
        " take days. Raise it where a server or a disk pauses for longer.",
    ),
]


def fill(root: Root, target: Disk, source: Disk, timeout: float) -> None:
    """Give ``target`` all bytes of ``source``; raises as ``VolumeDriver.fill``.

    It returns with the proof only: both disks were read back from their medium, and
    are as long and the same. ``timeout`` is the seconds without progress.

    :raises CopyDiffers: they are not; keep the source.
    """
    try:
        proof = root.call(
            "disk.copy", timeout=timeout, source=_told(source), target=_told(target)
        )
    except (TargetFailed, HelperRefused) as error:
        raise Unsupported(
            f"copying {source.path} to {target.path}: {error}",
            "make a new volume there, and copy the bytes on a host",
        ) from error
    _need(proof, target, source)


def _need(proof: Any, target: Disk, source: Disk) -> None:
    match proof:
        case {"size": int(size), "checksum": str()} if size >= source.size:
            return
    raise CopyDiffers(target.path, f"the helper's proof is {proof!r}")


def _told(disk: Disk) -> list[object]:
    return [disk.volume_id, disk.path, disk.size, disk.kind]
