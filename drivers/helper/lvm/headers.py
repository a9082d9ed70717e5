# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which metadata an LVM disk holds, from its headers alone.

Every command of LVM's reads and builds the whole text: a second for a thousand
volumes in the lab. A header says where the current text lies, its length and its
checksum (lvm2 2.03.16: lib/label/label.h, lib/format_text/layout.h); each commit
writes the text elsewhere, so all three together are one commit's and no other's.

Opening some devices does something (/dev/watchdog, a tape). So what a path leads to is
looked at first; only a block device that has the text of a served group is told of.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from lunshare.drivers.errors import DriverError, HelperRefused
from lunshare.drivers.helper.lio import target_requests
from lunshare.drivers.helper.named_locks import Locks
from lunshare.drivers.helper.served import Served

# One of the first four sectors is the label. It says where the list of areas is.
_LABEL, _SECTOR, _SECTORS = b"LABELONE", 512, 4
_OFFSET, _TYPE = 20, b"LVM2 001"
# After the disk's own id and size: data areas and metadata areas, as offset and
# size, each list ended by zeros.
_AREAS, _AREA = 40, struct.Struct("<QQ")
_MAGIC, _MAGIC_AT = b" LVM2 x[5A%r0N*>", 4
# Where the text is: offset, size, checksum, flags. The metadata of a disk that LVM is
# told to pass over (pvchange --metadataignore) is not written any more.
_TEXT_AT, _TEXT, _IGNORED = 40, struct.Struct("<QQLL"), 1
_BLOCK = 4096  # what O_DIRECT wants of offsets, lengths and memory (open(2))
_END = 2**63 - 2 * _BLOCK  # of the kernel's loff_t
# The text begins with the name of its group, which has at most 127 characters.
_GROUP = re.compile(rb"([A-Za-z0-9_+.-]{1,127}) \{\n")


class Headers:
    """The one verb. A second look at a disk that hangs waits for the first."""

    def __init__(self, served: Served) -> None:
        self._served, self._locks = served, Locks()

    def commit(self, given: Mapping[str, Any], seconds: float) -> list[int] | None:
        """Offset, size and checksum of the current text; None if there is none.

        :raises DriverError: it cannot be read, or is no block device.
        :raises HelperRefused: it is a disk of another group than those served.
        :raises DeadlineExceeded: it hangs.
        """
        device, found = target_requests.device(given), []  # type: str, list[list[int] | None]
        what = f"a look at {device}"
        with self._locks.hold(device, seconds, "headers") as hold:
            hold.patiently(what, lambda: found.append(self._looked(device)))
        return found[0]

    def _looked(self, device: str) -> list[int] | None:
        with _opened(device) as file:
            return self.told(device, file)

    def told(self, device: str, file: int) -> list[int] | None:
        """The same of an open disk."""
        found = commit(file)
        if found is None:
            return None
        group, *told = found
        if not self._served.group(group):
            raise HelperRefused(device, f"it is of volume group {group or '(none)'}")
        return told


@contextlib.contextmanager
def _opened(device: str) -> Iterator[int]:
    """A block device; nothing else that the path leads to is opened."""
    try:
        seen = os.open(device, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISBLK(os.fstat(seen).st_mode):
                raise DriverError(f"{device}: it is no block device")
            # LVM writes past the page cache, which may hold what was there before.
            flags = os.O_RDONLY | os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"/proc/self/fd/{seen}", flags)
        finally:
            os.close(seen)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        raise DriverError(f"{device}: {error.strerror}") from None


def commit(file: int) -> tuple[str, int, int, int] | None:
    """The group's name, and offset, size and checksum of its text, of an open disk."""
    area = _metadata_area(_block(file, 0))
    if not area or area % _BLOCK or area > _END:
        return None
    header = _block(file, area)
    if header[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
        return None
    offset, size, checksum, flags = _TEXT.unpack_from(header, _TEXT_AT)
    if not offset or flags & _IGNORED or area + offset > _END:
        return None
    return _group(file, area + offset), offset, size, checksum


def _group(file: int, at: int) -> str:
    """The name at the beginning of the text; empty if there is no text."""
    start = at // _BLOCK * _BLOCK
    text = _block(file, start) + _block(file, start + _BLOCK)
    found = _GROUP.match(text, at - start)
    return found[1].decode() if found else ""


def _metadata_area(start: bytes) -> int:
    """Where the first one is; 0 if the disk has none."""
    labels = range(0, _SECTOR * _SECTORS, _SECTOR)
    label = next((at for at in labels if start[at:].startswith(_LABEL)), None)
    if label is None or start[label + 24 : label + 32] != _TYPE:
        return 0
    (header,) = struct.unpack_from("<L", start, label + _OFFSET)
    lists = 0
    for at in range(label + header + _AREAS, len(start) - _AREA.size, _AREA.size):
        offset, _ = _AREA.unpack_from(start, at)
        if offset and lists:
            return int(offset)
        lists += not offset
        if lists > 1:
            break
    return 0


def _block(file: int, at: int) -> bytes:
    with mmap.mmap(-1, _BLOCK) as memory:
        os.preadv(file, [memory], at)
        return memory[:]
