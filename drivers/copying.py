# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Move a volume's bytes between two backends of the node, by the root helper."""

from __future__ import annotations

from drivers.base import Root
from drivers.errors import HelperRefused, TargetFailed, Unsupported
from drivers.values import Disk

# A copy slower than this is taken for hung. A worn disk does five times more.
_FLOOR = 10 * 1024**2


def fill(root: Root, target: Disk, source: Disk, timeout: float) -> None:
    """Give ``target`` all bytes of ``source``; raises as ``VolumeDriver.fill``.

    ``timeout`` is in seconds and for what is not copying.
    """
    try:
        root.call(
            "disk.copy",
            timeout=timeout + source.size / _FLOOR,
            source=_told(source),
            target=_told(target),
        )
    except (TargetFailed, HelperRefused) as error:
        raise Unsupported(
            f"copying {source.path} to {target.path}: {error}",
            "make a new volume there, and copy the bytes on a host",
        ) from error


def _told(disk: Disk) -> list[object]:
    return [disk.volume_id, disk.path, disk.size, disk.kind]
