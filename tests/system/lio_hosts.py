# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts for tests: sessions of libiscsi, each with its own initiator name.

libiscsi runs in this process, so one machine acts as many hosts. A session never
logs in again by itself: a session that the target ends stays ended.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint16,
    c_uint32,
    c_void_p,
)
from typing import Any

from lunshare.drivers.values import Auth

BLOCK = 512
NORMAL = 2
READ, WRITE = 1, 2
DATA_PROTECT = 7
GOOD, CHECK_CONDITION = 0, 2


class _Sense(Structure):
    _fields_ = [
        ("error_type", c_ubyte),
        ("key", c_int),
        ("ascq", c_int),
        ("flags", c_ubyte),
        ("bit_pointer", c_ubyte),
        ("field_pointer", c_uint16),
    ]


class _Data(Structure):
    _fields_ = [("size", c_int), ("data", POINTER(c_ubyte))]


class _Task(Structure):
    """libiscsi 1.19, include/scsi-lowlevel.h, struct scsi_task to its data."""

    _fields_ = [
        ("status", c_int),
        ("cdb_size", c_int),
        ("xfer_dir", c_int),
        ("expxferlen", c_int),
        ("cdb", c_ubyte * 16),
        ("residual_status", c_int),
        ("residual", c_size_t),
        ("sense", _Sense),
        ("datain", _Data),
    ]


class _Buffer(Structure):
    _fields_ = [("size", c_size_t), ("data", c_void_p)]


def _library() -> Any:
    library = ctypes.CDLL("libiscsi.so.7")
    task = POINTER(_Task)
    library.iscsi_create_context.restype = c_void_p
    library.iscsi_get_error.restype = c_char_p
    library.scsi_create_task.restype = task
    library.iscsi_scsi_command_sync.restype = task
    for name in ("destroy_context", "get_error", "logout_sync"):
        getattr(library, f"iscsi_{name}").argtypes = [c_void_p]
    library.iscsi_set_targetname.argtypes = [c_void_p, c_char_p]
    for name in ("session_type", "noautoreconnect", "timeout"):
        getattr(library, f"iscsi_set_{name}").argtypes = [c_void_p, c_int]
    library.iscsi_set_isid_random.argtypes = [c_void_p, c_uint32, c_uint32]
    library.iscsi_set_initiator_username_pwd.argtypes = [c_void_p, c_char_p, c_char_p]
    library.iscsi_full_connect_sync.argtypes = [c_void_p, c_char_p, c_int]
    library.scsi_create_task.argtypes = [c_int, c_char_p, c_int, c_int]
    library.iscsi_scsi_command_sync.argtypes = [c_void_p, c_int, task, c_void_p]
    library.iscsi_logout_async.argtypes = [c_void_p, c_void_p, c_void_p]
    library.scsi_free_scsi_task.argtypes = [task]
    return library


_Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_void_p)


def _ignore(_context: object, _status: int, _data: object, _private: object) -> None:
    """Called with the answer to a logout, if there is one."""


_IGNORED = _Callback(_ignore)


class LoginRefused(Exception):
    """The target refused the login."""


class Refused(Exception):
    """A command ended with CHECK CONDITION, or was not answered.

    ``words`` are libiscsi's for its last error.
    """

    def __init__(self, status: int, key: int, ascq: int, words: str = "") -> None:
        super().__init__(f"status {status:#x} sense {key:#x}/{ascq:#06x} {words}")
        self.status, self.key, self.ascq = status, key, ascq


class Session:
    """One login of one host to LUN 0 of one target."""

    def __init__(
        self,
        initiator: str,
        iqn: str,
        portal: str,
        auth: Auth | None = None,
        isid: int | None = None,
    ) -> None:
        """``isid``: the random part of the ISID; without one each has another."""
        self._lib = _library()
        self._context = self._lib.iscsi_create_context(initiator.encode())
        self._lib.iscsi_set_targetname(self._context, iqn.encode())
        self._lib.iscsi_set_session_type(self._context, NORMAL)
        self._lib.iscsi_set_noautoreconnect(self._context, 1)
        self._lib.iscsi_set_timeout(self._context, 60)
        if isid is not None:
            self._lib.iscsi_set_isid_random(self._context, isid, 0)
        if auth:
            pair = auth.username.encode(), auth.password.encode()
            self._lib.iscsi_set_initiator_username_pwd(self._context, *pair)
        if self._lib.iscsi_full_connect_sync(self._context, portal.encode(), 0):
            why = self._lib.iscsi_get_error(self._context).decode()
            self.close()
            raise LoginRefused(why)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.logout()

    def logout(self) -> None:
        """Log out."""
        if self._context:
            self._lib.iscsi_logout_sync(self._context)
            self.close()

    def begin_logout(self) -> None:
        """Send a logout and do not wait; another thread may wait for a command."""
        if self._lib.iscsi_logout_async(self._context, _IGNORED, None):
            raise ConnectionError(self._lib.iscsi_get_error(self._context).decode())

    def close(self) -> None:
        """Drop the connection, as a host that crashes."""
        if self._context:
            self._lib.iscsi_destroy_context(self._context)
            self._context = None

    @property
    def alive(self) -> bool:
        """Whether the target still answers, also with an error."""
        try:
            self.command(bytes(6))
        except Refused as refused:
            return refused.status == CHECK_CONDITION
        return True

    @property
    def serial(self) -> str:
        """The unit serial number (VPD page 80h)."""
        page = self.command(bytes([0x12, 1, 0x80, 0, 255, 0]), READ, 255)
        return page[4:].decode().strip("\0 ")

    @property
    def write_protected(self) -> bool:
        """The WP bit of MODE SENSE(6)."""
        return bool(
            self.command(bytes([0x1A, 8, 0x3F, 0, 255, 0]), READ, 255)[2] & 0x80
        )

    def read(self, block: int, count: int = 1) -> bytes:
        """Read blocks, READ(10)."""
        return self.command(_cdb(0x28, block, count), READ, count * BLOCK)

    def write(self, block: int, data: bytes) -> None:
        """Write complete blocks, WRITE(10)."""
        self.command(_cdb(0x2A, block, len(data) // BLOCK), WRITE, len(data), data)

    def command(
        self, cdb: bytes, direction: int = 0, length: int = 0, data: bytes = b""
    ) -> bytes:
        """Any command. Raises Refused unless its status is GOOD."""
        created = self._lib.scsi_create_task(len(cdb), cdb, direction, length)
        held = ctypes.create_string_buffer(data, len(data))
        out = _Buffer(len(data), ctypes.cast(held, c_void_p))
        given = ctypes.byref(out) if direction == WRITE else None
        task = self._lib.iscsi_scsi_command_sync(self._context, 0, created, given)
        if not task:
            raise Refused(-1, 0, 0)
        found = task.contents
        status, sense = found.status, (found.sense.key, found.sense.ascq)
        answer = (
            bytes(found.datain.data[: found.datain.size]) if direction == READ else b""
        )
        self._lib.scsi_free_scsi_task(task)
        if status != GOOD:
            words = self._lib.iscsi_get_error(self._context).decode(errors="replace")
            raise Refused(status, *sense, words)
        return answer


def _cdb(operation: int, block: int, count: int) -> bytes:
    return bytes(
        [operation, 0, *block.to_bytes(4, "big"), 0, *count.to_bytes(2, "big"), 0]
    )
