# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Copy a volume's bytes between two backends of the node, by the root helper."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from oslo_config import cfg

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import (
    CopyDiffers,
    HelperRefused,
    TargetFailed,
    Unsupported,
)
from lunshare.drivers.values import Disk

#: The options of each driver whose bytes the root helper copies or wipes.
OPTIONS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "progress_timeout",
        default=120.0,
        min=1.0,
        help="A copy, a wipe or the allocation of a new disk fails after this many"
        " seconds without progress. While it makes progress, it may take days."
        " Raise it if a server or a disk pauses for longer.",
    )
]


def fill(root: Root, target: Disk, source: Disk, timeout: float) -> None:
    """Copy all bytes of ``source`` to ``target``; raises as ``VolumeDriver.fill``.

    It returns only after verification: the helper read both disks back from stable
    storage, and their bytes are the same. ``timeout`` is the seconds without progress.

    :raises CopyDiffers: the bytes differ; do not delete the source.
    """
    try:
        proof = root.call(
            "disk.copy",
            timeout=timeout,
            source=_request(source),
            target=_request(target),
        )
    except (TargetFailed, HelperRefused) as error:
        raise Unsupported(
            f"copying {source.path} to {target.path}: {error}",
            "create a new volume there, and copy the bytes on a host",
        ) from error
    _require_proof(proof, target, source)


def require_same_sectors(
    source: VolumeDriver, target: VolumeDriver, volume_id: str
) -> None:
    """Check that hosts find partitions and blocks of a copy where they are.

    It asks the storage: what a scheduler knows of a pool may be old, or nothing.

    :raises Unsupported: the logical sectors of their disks have other sizes.
    """
    old, new = (pool.capacity().sector for pool in (source, target))
    if old != new:
        raise Unsupported(
            f"migration of volume {volume_id}, whose logical sectors have {old}"
            f" bytes, to backend {target.name}, whose disks have {new}",
            "copy its files on a host",
        )


def _require_proof(proof: Any, target: Disk, source: Disk) -> None:
    match proof:
        case {"size": int(size)} if size >= source.size:
            return
    raise CopyDiffers(target.path, f"the helper's proof is {proof!r}")


def _request(disk: Disk) -> dict[str, object]:
    return asdict(disk)
