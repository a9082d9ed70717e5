# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Active logical volumes as device-mapper and udev know them.

They are read without root, without a process and without LVM. udev's properties
DM_VG_NAME, DM_LV_NAME and DM_LV_LAYER are what dmsetup splitname reports
(11-dm-lvm.rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyudev

from lunshare.drivers import devices

#: LVM's layer of a pool below its volumes.
POOL_LAYER = "tpool"


@dataclass(frozen=True, slots=True)
class MappedVolume:
    """A device of a logical volume. ``layer`` is empty for the volume itself.

    ``device`` is its name for dmsetup.
    """

    name: str
    layer: str
    device: str


def thin_pool_of(path: str, group: str) -> str:
    """Return the thin pool of an active logical volume; empty if it is not thin.

    :raises FileNotFoundError: the device does not exist.
    """
    for device in _below(devices.at_path(path)):
        if device.properties.get("DM_VG_NAME") == group:
            volume = _volume(device)
            if volume.layer == POOL_LAYER:
                return volume.name
    return ""


def suspended(group: str) -> tuple[MappedVolume, ...]:
    """Return the suspended devices of a group, LVM's own layers included."""
    present = devices.context().list_devices(subsystem="block", DM_VG_NAME=group)
    return tuple(
        _volume(device)
        for device in present
        if device.attributes.get("dm/suspended") == b"1"
    )


def _volume(device: devices.Device) -> MappedVolume:
    return MappedVolume(
        device.properties.get("DM_LV_NAME", ""),
        device.properties.get("DM_LV_LAYER", ""),
        device.properties.get("DM_NAME", ""),
    )


def _below(device: devices.Device) -> Iterator[devices.Device]:
    """Yield the devices below this one."""
    try:
        for path in (Path(device.sys_path) / "slaves").iterdir():
            lower = pyudev.Devices.from_sys_path(devices.context(), str(path.resolve()))
            yield lower
            yield from _below(lower)
    except (FileNotFoundError, pyudev.DeviceNotFoundError):
        return  # a disk has none, or it was removed meanwhile
