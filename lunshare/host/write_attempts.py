# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Writes that a read-only disk must refuse, sent past the host's own checks.

The block layer of a host refuses writes to a read-only disk itself, so only SCSI
commands (SG_IO of the kernel's sg driver) show what the target does. The first one
compares with other bytes than the block has, so a disk that accepts it writes nothing.
The others write what the block had, which could undo a write of another host: they are
sent only while the disk has refused all before.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_SG_IO, _BLKSSZGET = 0x2285, 0x1268  # scsi/sg.h, linux/fs.h
_TO_DEVICE, _FROM_DEVICE = -2, -3
_TIMEOUT_MS = 30_000
_SENSE_BYTES = 64
_DESCRIPTOR = 0x72  # response code of sense data with descriptors (SPC-4 4.5.2)

#: Commands of SBC-3 that write one block at address 0, with their blocks of data.
_COMMANDS = (
    ("COMPARE AND WRITE", bytes((0x89, *[0] * 12, 1, 0, 0)), 2),
    ("WRITE(10)", bytes((0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0)), 1),
    ("WRITE(16)", bytes((0x8A, *[0] * 12, 1, 0, 0)), 1),
    ("WRITE SAME(16)", bytes((0x93, *[0] * 12, 1, 0, 0)), 1),
)
#: Senses (SPC-4 annex F): DATA PROTECT, WRITE PROTECTED; MISCOMPARE DURING VERIFY.
PROTECTED, MISCOMPARED = "07/27/00", "0e/1d/00"
_READ = bytes((0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0))


class Attempt(NamedTuple):
    """One write. ``sense``: key, code and qualifier, hexadecimal; "" if accepted."""

    command: str
    sense: str


class _Request(ctypes.Structure):
    """struct sg_io_hdr."""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("command_bytes", ctypes.c_ubyte),
        ("sense_bytes", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("data_bytes", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("command", ctypes.c_void_p),
        ("sense", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("message_status", ctypes.c_ubyte),
        ("sense_written", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("residual", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


def try_writes(path: str) -> tuple[list[Attempt], bool]:
    """Try commands on a disk until one is not refused as a reader's is.

    Returns the attempts, and whether its block changed.

    :raises OSError: the disk can not be read, or a command got no answer.
    """
    disk = os.open(path, os.O_RDONLY)
    try:
        before = _read(disk)
        attempts = list(_attempts(disk, before))
        return attempts, _read(disk) != before
    finally:
        os.close(disk)


def _attempts(disk: int, block: bytes) -> Iterator[Attempt]:
    others = bytes(byte ^ 0xFF for byte in block)
    for name, command, blocks in _COMMANDS:
        text = block if blocks == 1 else others * blocks
        data = ctypes.create_string_buffer(text, len(text))
        sense = _send(disk, command, data, _TO_DEVICE)
        yield Attempt(name, sense)
        if sense != PROTECTED:
            return


def _read(disk: int) -> bytes:
    size = struct.unpack("i", fcntl.ioctl(disk, _BLKSSZGET, bytes(4)))[0]
    data = ctypes.create_string_buffer(size)
    if sense := _send(disk, _READ, data, _FROM_DEVICE):
        raise OSError(f"a read of the disk was refused with sense {sense}")
    return data.raw


def _send(
    disk: int, command: bytes, data: ctypes.Array[ctypes.c_char], direction: int
) -> str:
    """Return the sense of a refused command, or "".

    :raises OSError: it got no answer of the target.
    """
    words = ctypes.create_string_buffer(command, len(command))
    sense = ctypes.create_string_buffer(_SENSE_BYTES)
    request = _Request(
        interface_id=ord("S"),
        direction=direction,
        command_bytes=len(command),
        sense_bytes=_SENSE_BYTES,
        data_bytes=len(data),
        data=ctypes.addressof(data),
        command=ctypes.addressof(words),
        sense=ctypes.addressof(sense),
        timeout=_TIMEOUT_MS,
    )
    fcntl.ioctl(disk, _SG_IO, request)
    if request.host_status:
        raise OSError(f"a command got no answer: host status {request.host_status}")
    if request.sense_written:
        return _text(sense.raw)
    if request.status:
        raise OSError(f"a command ended with SCSI status {request.status:#04x}")
    return ""


def _text(sense: bytes) -> str:
    """Return key/code/qualifier of sense data in either form."""
    if sense[0] & 0x7F >= _DESCRIPTOR:
        key, code, qualifier = sense[1], sense[2], sense[3]
    else:
        key, code, qualifier = sense[2], sense[12], sense[13]
    return f"{key & 0xF:02x}/{code:02x}/{qualifier:02x}"
