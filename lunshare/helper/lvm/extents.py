# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of thick LVM volumes, and deleted volumes that are not wiped yet.

Bytes are written only to a logical volume that does not have a volume's name yet
(``.new``, ``.tail``) or does not have it any more (``deleted-``), and only while no
other process has it open. The opened device must have this name in device-mapper.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.errors import HelperRefused, InvalidValue
from lunshare.drivers.protocol.export_paths import double_hyphens
from lunshare.drivers.values import UUID
from lunshare.helper import disk_paths, forms, served
from lunshare.helper.named_locks import TimedLock
from lunshare.helper.served import Served

_GROUP = r"/dev/(?P<group>(?!shm/|mqueue/)[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,126})"
_NEW = re.compile(rf"{_GROUP}/(?P<name>volume-(?P<id>{UUID})\.(new|tail))")
_OLD = re.compile(rf"{_GROUP}/(?P<name>deleted-(?P<id>{UUID})\.[0-9]{{1,20}})")
_SNAPSHOT = re.compile(rf"{_GROUP}/(?P<name>_snapshot-(?P<id>{UUID}))")
_IDENTITY = re.compile(rf"(volume|deleted|_snapshot)-({UUID})")

# Offsets of the kernel are signed.
_MOST = 2**63 - 1

# udev, LVM and a helper that was killed hold a device open for a moment.
_PATIENCE_SECONDS = 3.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Zero:
    """Zero ``length`` bytes from ``start`` on; None: to the end."""

    device: str
    start: int
    length: int | None


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the first ``length`` bytes of a snapshot to a part."""

    source: str
    target: str
    length: int


def zero(given: Mapping[str, Any], by: Served) -> Zero:
    """Check the arguments of lvm.zero."""
    request = _ZERO("", given)
    _need_served(request.device, by)
    return request


def copy(given: Mapping[str, Any], by: Served) -> Copy:
    """Check the arguments of lvm.copy."""
    request = _COPY("", given)
    _need_served(request.source, by)
    _need_served(request.target, by)
    return request


def id_of(path: str) -> str:
    """Return the id in a disk's path; the path itself if there is none."""
    match = _IDENTITY.search(path)
    return match[2] if match else path


@contextlib.contextmanager
def opened(path: str, flags: int, lock: TimedLock) -> Iterator[int]:
    """Open one of these devices past caches, and check what was opened.

    :raises OSError: EBUSY, when another process has it open.
    """
    # Checked before the open, because opening some devices has an effect.
    if not stat.S_ISBLK(os.stat(path).st_mode):
        raise OSError(errno.ENOTBLK, "it is not a block device", path)
    file = open_patiently(path, flags | os.O_DIRECT, lock)
    try:
        _need_its_name(path, os.fstat(file))
        yield file
    finally:
        os.close(file)


def open_patiently(path: str, flags: int, lock: TimedLock) -> int:
    """Open it. While it is busy, retry for a while, within the time of ``lock``."""
    until = time.monotonic() + min(_PATIENCE_SECONDS, lock.left() / 2)
    while True:
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= until:
                raise
        time.sleep(_POLL_SECONDS)


def _need_its_name(path: str, found: os.stat_result) -> None:
    """Check the device-mapper name: a link below /dev may be stale or forged."""
    match = _NEW.fullmatch(path) or _OLD.fullmatch(path) or _SNAPSHOT.fullmatch(path)
    expected = (
        "-".join(double_hyphens(match[group]) for group in ("group", "name"))
        if match
        else ""
    )
    if (
        not stat.S_ISBLK(found.st_mode)
        or disk_paths.device_mapper_name(found) != expected
    ):
        raise OSError(errno.ENODEV, f"device-mapper does not call it {expected}", path)


def _part(*patterns: re.Pattern[str]) -> forms.Form[str]:
    def read(name: str, given: object) -> str:
        path = forms.typed(name, given, str)
        if not any(pattern.fullmatch(path) for pattern in patterns):
            raise InvalidValue(name, path, "give the path of a part of a thick volume")
        return path

    return read


def _need_served(path: str, by: Served) -> None:
    if not by.serves_group(path.split("/")[2]):
        raise HelperRefused(path, f"{served.PATH} does not name its volume group")


_BYTES = forms.integer(0, _MOST, 512)
_ZERO = forms.record(
    Zero, device=_part(_NEW, _OLD), start=_BYTES, length=forms.optional(_BYTES)
)
_COPY = forms.record(Copy, source=_part(_SNAPSHOT), target=_part(_NEW), length=_BYTES)
