# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Disks of volume groups that are lost or back, as soon as udev reports it.

udev only says when to look: LVM's report says what is missing. A disk is one of LVM if
udev has seen LVM's header there, or if LVM says so: udev does not read some devices
again after pvcreate (loop devices in Debian 12). Each change of a group writes to its
disks, and udev reports that too; such an event changes nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from lunshare.drivers import devices
from lunshare.drivers.devices import BlockEvents, Device

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class DiskState:
    """LVM's identity of a disk as udev knows it, else empty; and its size as text."""

    uuid: str
    size: bytes


_NO_DISK = DiskState("", b"0")


class BlockDevices:
    """The block devices of the node, without logical volumes.

    What a host has written to a logical volume is not ours.
    """

    def __init__(self, disks: Callable[[], Collection[str]]) -> None:
        """``disks`` returns the paths that LVM names for the disks of the group."""
        self._disks = disks
        present = devices.context().list_devices(subsystem="block")
        self._states = {
            device.sys_path: _state(device)
            for device in present
            if "DM_VG_NAME" not in device.properties
        }

    def differ(self, device: Device) -> bool:
        """Whether an event shows that a disk of LVM is lost, back, or another one."""
        if "DM_VG_NAME" in device.properties:
            return False
        before = self._states.get(device.sys_path, _NO_DISK)
        state = _NO_DISK if device.action == "remove" else _state(device)
        self._states[device.sys_path] = state
        paths = {device.device_node, *device.device_links}
        concerned = state.uuid or before.uuid or not paths.isdisjoint(self._disks())
        return bool(concerned) and state != before


def _state(device: Device) -> DiskState:
    member = device.properties.get("ID_FS_TYPE") == "LVM2_member"
    uuid = str(device.properties.get("ID_FS_UUID", "")) if member else ""
    return DiskState(uuid, device.attributes.get("size") or b"0")


def follow(
    disks: Callable[[], Collection[str]],
    changed: Callable[[], object],
    started: threading.Event,
) -> None:
    """Call ``changed`` whenever a disk of LVM is lost or back, after ``started``.

    Never returns. ``disks``: see ``BlockDevices``.
    """
    with BlockEvents() as events:
        differ = BlockDevices(disks).differ
        started.set()
        while True:
            while not events.wait(_DAY, differ):
                pass
            # In this order, so that the caller sees what is not an event any more.
            differ = BlockDevices(disks).differ
            changed()
