# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How full a thin pool or a thin volume is, as the kernel says: one ioctl.

``dmsetup status`` does the same in a process of its own, which is 60 ms of a create in
the lab, where lvcreate takes 800. The ioctl needs root, as the process did.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from lunshare.drivers.errors import DriverError, HelperRefused
from lunshare.drivers.protocol.export_paths import double_hyphens
from lunshare.helper import forms
from lunshare.helper.named_locks import Locks
from lunshare.helper.served import Served

_CONTROL = "/dev/mapper/control"
# linux/dm-ioctl.h: struct dm_ioctl with a name and a uuid; struct dm_target_spec, which
# the target's status follows; _IOWR(DM_IOCTL, DM_TABLE_STATUS_CMD, struct dm_ioctl).
_HEADER, _TARGET = struct.Struct("=6Ii3IQ128s129s7s"), struct.Struct("=QQiI16s")
_VERSION, _TABLE_STATUS = (4, 0, 0), 0xC138FD0C
# Without it the kernel commits the pool's metadata first. If its disk fails writes, the
# pool is then read-only until it is repaired (Linux 6.12).
_NO_FLUSH, _FULL = 1 << 11, 1 << 8
# The status of a pool has about 100 characters. Python 3.11 holds the interpreter's
# lock during an ioctl with more bytes than this (fcntlmodule.c).
_SIZE = 1024
_LONGEST = 127  # characters of a device's name

# A pool that has volumes is below an LVM layer with that suffix.
_LAYERS = ("-tpool", "")

_NAME = re.compile("[A-Za-z0-9_+.][A-Za-z0-9_+.-]*")
_GROUP = forms.text(_NAME, "name a group")
_POOL = forms.record(
    lambda group, pool: (group, pool),
    group=_GROUP,
    pool=forms.text(_NAME, "name a thin pool"),
)
_VOLUME = forms.record(
    lambda group, volume: (group, volume),
    group=_GROUP,
    volume=forms.text(_NAME, "name a thin volume"),
)


class PoolVerbs:
    """The verbs lvm.pool and lvm.mapped.

    A second read of a pool or volume that hangs waits for the first.
    """

    def __init__(self, served: Served) -> None:
        self._served, self._locks = served, Locks()

    def status(self, given: Mapping[str, Any], seconds: float) -> str | None:
        """Return the kernel's status of a thin pool; None if it is not active.

        :raises HelperRefused: it is in a group that is not served.
        :raises DriverError: the kernel does not tell it.
        :raises DeadlineExceeded: its disk hangs.
        """
        return self._status(_POOL("", given), "thin-pool", _LAYERS, seconds)

    def mapped(self, given: Mapping[str, Any], seconds: float) -> str | None:
        """Return the kernel's status of a thin volume; raises as ``status``."""
        return self._status(_VOLUME("", given), "thin", ("",), seconds)

    def _status(
        self, words: tuple[str, str], kind: str, layers: Sequence[str], seconds: float
    ) -> str | None:
        where = "/".join(words)
        if not self._served.serves_group(words[0]):
            raise HelperRefused(where, "its volume group is not served")
        name = "-".join(map(double_hyphens, words))
        texts: list[str | None] = []
        with self._locks.hold(name, seconds, "pools") as lock:
            what = f"reading the status of {where}"
            lock.run_step(what, lambda: texts.append(_status(name, kind, layers)))
        return texts[0]


def _status(name: str, kind: str, layers: Sequence[str]) -> str | None:
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # the kernel has no device-mapper, so no active pool
        return None
    try:
        texts = (_status_of_device(control, name + layer, kind) for layer in layers)
        return next(filter(None, texts), None)
    except OSError as error:
        raise DriverError(f"{name}: {error.strerror}") from None
    finally:
        os.close(control)


def _status_of_device(control: int, name: str, kind: str) -> str | None:
    """Return the status of the device of that name, if it is of that kind."""
    if len(name) > _LONGEST:
        return None
    buffer = bytearray(_SIZE)
    words = (*_VERSION, _SIZE, _HEADER.size, 0, 0, _NO_FLUSH, 0, 0, 0)
    _HEADER.pack_into(buffer, 0, *words, name.encode(), b"", b"")
    try:
        fcntl.ioctl(control, _TABLE_STATUS, buffer)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no such device
            return None
        raise
    return status_of(buffer, kind)


def status_of(answer: bytearray, kind: str) -> str | None:
    """Return the text in an answer of the kernel; None if it is of another target.

    :raises OSError: the answer is not complete.
    """
    words = _HEADER.unpack_from(answer)
    start, targets, flags = words[4], words[5], words[7]
    if flags & _FULL:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    if targets != 1:
        return None
    if _TARGET.unpack_from(answer, start)[-1].rstrip(b"\0") != kind.encode():
        return None
    text = answer[start + _TARGET.size :].partition(b"\0")[0]
    return text.decode(errors="replace")
