# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting while udev has a logical volume open.

udev reads a logical volume as soon as somebody who had it open for writing closes it
(``OPTIONS+="watch"``, 13-dm-disk.rules; Debian: 60-persistent-storage-dm.rules). So a
disk that was just written to is open for some milliseconds, or for a second on a busy
node.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lunshare.drivers.lvm.lvm_reports import VolumeDetails

# As long as LVM itself waits when it deactivates a volume
# (activation/retry_deactivation: 25 times 0.2 s, libdm/ioctl/libdm-iface.c).
_SECONDS, _PAUSE = 5.0, 0.2


def wait_until_closed(
    found: VolumeDetails | None, find: Callable[[], VolumeDetails | None]
) -> VolumeDetails | None:
    """Return ``found`` if it is closed, else what ``find`` returns within 5 seconds.

    :return: None if it does not exist any more. If it is still open, something else
        than udev uses it.
    """
    deadline = time.monotonic() + _SECONDS
    while found is not None and found.open and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        found = find()
    return found
