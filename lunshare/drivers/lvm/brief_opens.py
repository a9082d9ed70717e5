# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting while udev has a logical volume open.

udev reads a logical volume as soon as somebody who had it open for writing closes it
(``OPTIONS+="watch"``, 13-dm-disk.rules; Debian: 60-persistent-storage-dm.rules). So a
disk that was just written to is open for some milliseconds, or for a second on a busy
node. udev has closed it when it reports the event.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lunshare.drivers.devices import BlockEvents, Device
from lunshare.drivers.lvm.lvm_reports import VolumeDetails

# As long as LVM itself waits when it deactivates a volume
# (activation/retry_deactivation: 25 times 0.2 s, libdm/ioctl/libdm-iface.c).
_SECONDS = 5.0


def wait_until_closed(
    volume: VolumeDetails | None, find: Callable[[], VolumeDetails | None]
) -> VolumeDetails | None:
    """Return ``volume`` if it is closed, else what ``find`` returns within 5 seconds.

    ``find`` is called again after each event of the volume.

    :return: None if it does not exist any more. If it is still open, something else
        than udev uses it.
    """
    if volume is None or not volume.open:
        return volume
    name, deadline = volume.name, time.monotonic() + _SECONDS

    def concerns(device: Device) -> bool:
        return bool(device.properties.get("DM_LV_NAME") == name)

    with BlockEvents() as events:
        # Its event may have been before these. At the end there is one look more,
        # because a program that only read it leaves without an event.
        volume, waited = find(), True
        while volume is not None and volume.open and waited:
            waited = events.wait(deadline - time.monotonic(), concerns)
            volume = find()
    return volume
