# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""SCSI commands that change, reserve or block a disk, as a read-only host sends them.

All of them address the first blocks. SBC-4 and SPC-5 define them.
"""

from __future__ import annotations

from tests.system.lio_hosts import BLOCK

_X = b"\xee" * BLOCK
_KEY = b"intruder"


def commands(serial: str) -> dict[str, tuple[bytes, bytes]]:
    """Name to command and its data."""
    return {
        **_writes(),
        **_same(),
        "FORMAT UNIT": (bytes([0x04, 0, 0, 0, 0, 0]), b""),
        "UNMAP": (_cdb(0x42, 10, {8: 24}), _unmap()),
        "RESERVE(6)": (bytes([0x16, 0, 0, 0, 0, 0]), b""),
        "RELEASE(6)": (bytes([0x17, 0, 0, 0, 0, 0]), b""),
        "RESERVE(10)": (_cdb(0x56, 10, {}), b""),
        "RELEASE(10)": (_cdb(0x57, 10, {}), b""),
        **_reservations(),
        **{
            f"EXTENDED COPY LID{kind}": (
                _cdb(0x83, 16, {1: int(kind == 4), 13: 108}),
                copy,
            )
            for kind in (1, 4)
            for copy in [_copy(serial)]
        },
    }


def _writes() -> dict[str, tuple[bytes, bytes]]:
    one = {
        "WRITE(6)": _cdb(0x0A, 6, {4: 1}),
        "WRITE(10)": _cdb(0x2A, 10, {8: 1}),
        "WRITE(12)": _cdb(0xAA, 12, {9: 1}),
        "WRITE(16)": _cdb(0x8A, 16, {13: 1}),
        "WRITE(32)": _long(0x0B, {31: 1}),
        "WRITE AND VERIFY(10)": _cdb(0x2E, 10, {8: 1}),
        "WRITE AND VERIFY(12)": _cdb(0xAE, 12, {9: 1}),
        "WRITE AND VERIFY(16)": _cdb(0x8E, 16, {13: 1}),
        "WRITE ATOMIC(16)": _cdb(0x9C, 16, {13: 1}),
        "XDWRITEREAD(10)": _cdb(0x53, 10, {8: 1}),
    }
    compare = _cdb(0x89, 16, {13: 1})
    return {
        **{name: (cdb, _X) for name, cdb in one.items()},
        "COMPARE AND WRITE": (compare, _X * 2),
    }


def _same() -> dict[str, tuple[bytes, bytes]]:
    """WRITE SAME: with data, without (NDOB), and as a discard (UNMAP)."""
    created = {}
    for name, bits in (("", 0), (" UNMAP", 8), (" ANCHOR", 24)):
        created[f"WRITE SAME(10){name}"] = (_cdb(0x41, 10, {1: bits, 8: 4}), _X)
        created[f"WRITE SAME(16){name}"] = (_cdb(0x93, 16, {1: bits, 13: 4}), _X)
        created[f"WRITE SAME(32){name}"] = (_long(0x0D, {10: bits, 31: 4}), _X)
    for name, bits in ((" NDOB", 1), (" NDOB UNMAP", 9)):
        created[f"WRITE SAME(16){name}"] = (_cdb(0x93, 16, {1: bits, 13: 4}), b"")
        created[f"WRITE SAME(32){name}"] = (_long(0x0D, {10: bits, 31: 4}), b"")
    return created


def _reservations() -> dict[str, tuple[bytes, bytes]]:
    register = bytes(8) + _KEY + bytes(8)
    mine = _KEY + bytes(16)
    theirs = _KEY + b"writer-a" + bytes(8)
    kinds = {
        "REGISTER": (0, register),
        "RESERVE": (1, mine),
        "RELEASE": (2, mine),
        "CLEAR": (3, mine),
        "PREEMPT": (4, theirs),
        "PREEMPT AND ABORT": (5, theirs),
        "REGISTER AND IGNORE": (6, register),
    }
    return {
        f"PR OUT {name}": (_cdb(0x5F, 10, {1: action, 2: 3, 8: 24}), data)
        for name, (action, data) in kinds.items()
    }


def _copy(serial: str) -> bytes:
    """Segment descriptor, block to block, LID1: copy the first block to the second.

    Both identification descriptors name this LUN, by the NAA name that LIO derives
    from its serial.
    """
    name = bytes([0x60, 0x01, 0x40, 0x50 | int(serial[0], 16)])
    digits = serial.replace("-", "")[1:25]
    naa = name + bytes.fromhex(digits)
    device = bytes([0xE4, 0, 0, 0, 1, 3, 0, 16]) + naa
    device = device.ljust(28, b"\0") + bytes([0, 0, 2, 0])
    segment = bytes([0x02, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1])
    segment += (0).to_bytes(8, "big") + (1).to_bytes(8, "big")
    header = bytes([0, 0, 0, 64, 0, 0, 0, 0]) + len(segment).to_bytes(4, "big")
    return header + bytes(4) + device * 2 + segment


def _unmap() -> bytes:
    return bytes([0, 22, 0, 16, 0, 0, 0, 0, *bytes(8), 0, 0, 0, 8, 0, 0, 0, 0])


def _cdb(operation: int, length: int, fields: dict[int, int]) -> bytes:
    created = bytearray(length)
    created[0] = operation
    for at, value in fields.items():
        created[at] = value
    return bytes(created)


def _long(action: int, fields: dict[int, int]) -> bytes:
    """A command of 32 bytes: 7Fh with a service action."""
    return _cdb(0x7F, 32, {7: 24, 9: action, **fields})
