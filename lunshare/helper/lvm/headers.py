# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which version of the metadata an LVM disk has, from its headers alone.

Every LVM command reads and parses the complete metadata text: a second for a thousand
volumes in the lab. A header has the offset, the length and the checksum of the
current text (lvm2 2.03.16: lib/label/label.h, lib/format_text/layout.h). Each commit
writes the text to another place, so the three numbers together identify one commit.

Opening some devices has an effect (/dev/watchdog, a tape). So the type is checked
before the open. Only a block device with the text of a served group is reported.
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
from lunshare.helper import requests
from lunshare.helper.named_locks import Locks
from lunshare.helper.served import Served

# One of the first four sectors is the label. It has the offset of the list of areas.
_LABEL, _SECTOR, _SECTORS = b"LABELONE", 512, 4
_OFFSET, _TYPE = 20, b"LVM2 001"
# After the disk's own id and size: data areas and metadata areas, as offset and
# size; each list ends with zeros.
_AREAS, _AREA = 40, struct.Struct("<QQ")
_MAGIC, _MAGIC_AT = b" LVM2 x[5A%r0N*>", 4
# Where the text is: offset, size, checksum, flags. LVM does not update the metadata of
# a disk that is set to be ignored (pvchange --metadataignore).
_TEXT_AT, _TEXT, _IGNORED = 40, struct.Struct("<QQLL"), 1
_BLOCK = 4096  # O_DIRECT requires this alignment of offsets and memory (open(2))
_END = 2**63 - 2 * _BLOCK  # of the kernel's loff_t
# The text starts with the name of its group, which has at most 127 characters.
_GROUP = re.compile(rb"([A-Za-z0-9_+.-]{1,127}) \{\n")


class HeaderVerbs:
    """The verb lvm.commit. A second read of a disk that hangs waits for the first."""

    def __init__(self, served: Served) -> None:
        self._served, self._locks = served, Locks()

    def commit(self, given: Mapping[str, Any], seconds: float) -> dict[str, int] | None:
        """Return offset, size and checksum of the current text; None if it has none.

        :raises DriverError: it cannot be read, or is not a block device.
        :raises HelperRefused: it is a disk of a group that is not served.
        :raises DeadlineExceeded: it hangs.
        """
        device = requests.device(given)
        commits: list[dict[str, int] | None] = []
        what = f"reading the header of {device}"
        with self._locks.hold(device, seconds, "headers") as lock:
            lock.run_step(what, lambda: commits.append(self._read(device)))
        return commits[0]

    def _read(self, device: str) -> dict[str, int] | None:
        with _opened(device) as file:
            return self.commit_of(device, file)

    def commit_of(self, device: str, file: int) -> dict[str, int] | None:
        """Return the same for an open disk."""
        fields = commit(file)
        if fields is None:
            return None
        group, offset, size, checksum = fields
        if not self._served.serves_group(group):
            raise HelperRefused(device, f"its volume group is {group or '(none)'}")
        return {"offset": offset, "size": size, "checksum": checksum}


@contextlib.contextmanager
def _opened(device: str) -> Iterator[int]:
    """Open a block device. Anything else at the path is not opened."""
    try:
        node = os.open(device, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISBLK(os.fstat(node).st_mode):
                raise DriverError(f"{device}: it is not a block device")
            # LVM writes past the page cache, which may hold older bytes.
            flags = os.O_RDONLY | os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"/proc/self/fd/{node}", flags)
        finally:
            os.close(node)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        raise DriverError(f"{device}: {error.strerror}") from None


def commit(file: int) -> tuple[str, int, int, int] | None:
    """Return group name, and offset, size and checksum of the text, of an open disk."""
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
    """Return the name at the start of the text; empty if there is no text."""
    start = at // _BLOCK * _BLOCK
    text = _block(file, start) + _block(file, start + _BLOCK)
    match = _GROUP.match(text, at - start)
    return match[1].decode() if match else ""


def _metadata_area(start: bytes) -> int:
    """Return the offset of the first metadata area; 0 if the disk has none."""
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
