# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What Cinder's LVM driver with lioadm has created: a backstore for each target.

It is ``iblock_N/PREFIXvolume-ID``, with a number that rtslib has chosen. It may become
lunshare's only if it has the volume's own logical volume, in a group that may be taken
over: another group of the node may still be Cinder's, with the same names of targets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Disk
from lunshare.helper import disk_paths
from lunshare.helper.lio import backstores
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.configfs import CORE, names, read_or_empty

#: Whether the targets of a volume group may be taken over.
TakesOver = Callable[[str], bool]

_HBA = re.compile(r"iblock_(\d+)")


def may_take(path: str, volume_id: str, prefix: str, takes_over: TakesOver) -> bool:
    """Whether a backstore is Cinder's, for the volume's disk in such a group."""
    hba, name = path.rsplit("/", 2)[1:]
    if not _HBA.fullmatch(hba) or name != _name(volume_id, prefix):
        return False
    group = export_paths.group_of(Disk(volume_id, _disk_path(path), 0))
    return group is not None and takes_over(group)


def existing(volume_id: str, prefix: str) -> list[str]:
    """Return the backstores of that name that rtslib has created, with any disk.

    One may be left without a target. So the HBAs are listed, but only what rtslib has
    created is looked at: nothing, when every host has been attached again.
    """
    name = _name(volume_id, prefix)
    numbers = filter(None, map(_HBA.fullmatch, names(CORE)))
    hbas = [entry[0] for entry in numbers if int(entry[1]) < backstores.FIRST]
    paths = (f"{CORE}/{hba}/{name}" for hba in hbas)
    return [path for path in paths if os.path.isdir(path)]


def _name(volume_id: str, prefix: str) -> str:
    return backstores.name_of(volume_id, Role.WRITERS, prefix)


def _disk_path(path: str) -> str:
    """Return the path of the disk: of the open one, else of the one to be opened.

    The text in udev_path may be anything. What device-mapper says is true.
    """
    if device := backstores.live_device(path):
        return f"/dev/mapper/{disk_paths.mapped_name(device)}"
    return read_or_empty(path + "/udev_path")
