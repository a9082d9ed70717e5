# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Physical volumes that are lost or back, as soon as udev reports it.

udev only says when to look: LVM's report says what is missing. Each change of a group
writes to its disks, and udev reports that too; such an event changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable

from lunshare.drivers import devices
from lunshare.drivers.devices import BlockEvents, Device

_DAY = 86400.0


class PhysicalVolumes:
    """The block devices that udev has recognised as physical volumes."""

    def __init__(self) -> None:
        present = devices.context().list_devices(
            subsystem="block", ID_FS_TYPE="LVM2_member"
        )
        self._uuids = {device.sys_path: _uuid(device) for device in present}

    def differs(self, device: Device) -> bool:
        """Whether the device of an event has become one, is none any more, or another.

        Logical volumes do not count: what a host has written there is not ours.
        """
        if "DM_VG_NAME" in device.properties:
            return False
        uuid = None if device.action == "remove" else _uuid(device)
        return bool(uuid != self._uuids.get(device.sys_path))


def _uuid(device: Device) -> str | None:
    """Return LVM's identity of a physical volume; None for another device."""
    if device.properties.get("ID_FS_TYPE") != "LVM2_member":
        return None
    return str(device.properties.get("ID_FS_UUID", ""))


def follow(changed: Callable[[], object]) -> None:
    """Call ``changed`` now, and whenever a physical volume is lost or back.

    Never returns.
    """
    with BlockEvents() as events:
        while True:
            # In this order, so that the caller sees what is not an event any more.
            present = PhysicalVolumes()
            changed()
            while not events.wait(_DAY, present.differs):
                pass
