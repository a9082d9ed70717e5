# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Real initiators for the kit: each host is a libiscsi session.

Every call has libiscsi's time limit. No session logs in again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.drivers.values import Auth
from tests.system.lio_hosts import BLOCK, DATA_PROTECT, READ, LoginRefused, Refused
from tests.system.lio_hosts import Session as Wire

_READ_CAPACITY_10 = bytes([0x25, *bytes(9)])


class RealSession:
    """One session, as the kit needs it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def serial(self) -> str:
        return self._wire.serial

    @property
    def size(self) -> int:
        answer = self._wire.command(_READ_CAPACITY_10, READ, 8)
        last, length = answer[:4], answer[4:]
        return (int.from_bytes(last, "big") + 1) * int.from_bytes(length, "big")

    @property
    def alive(self) -> bool:
        return self._wire.alive

    def read(self, offset: int, length: int) -> bytes:
        try:
            return self._wire.read(offset // BLOCK, length // BLOCK)
        except Refused as refused:
            raise _as_os_error(refused) from refused

    def write(self, offset: int, data: bytes) -> None:
        try:
            self._wire.write(offset // BLOCK, data)
        except Refused as refused:
            raise _as_os_error(refused) from refused

    def close(self) -> None:
        self._wire.close()


class RealHost:
    """One initiator that connects to the target over TCP."""

    def __init__(self, initiator: str) -> None:
        self.initiator = initiator

    def login(self, connection: Mapping[str, Any]) -> RealSession:
        auth = None
        if "auth_method" in connection:
            auth = Auth(connection["auth_username"], connection["auth_password"])
        iqn, portal = connection["target_iqn"], connection["target_portal"]
        try:
            return RealSession(Wire(self.initiator, iqn, portal, auth))
        except LoginRefused as refused:
            raise PermissionError(str(refused)) from refused


# libiscsi's own statuses start here (scsi-lowlevel.h, SCSI_STATUS_CANCELLED):
# the command had no answer because its session ended.
_CANCELLED = 0x0F000000


def _as_os_error(refused: Refused) -> OSError:
    """DATA PROTECT is PermissionError; a command without an answer ConnectionError."""
    if refused.key == DATA_PROTECT:
        return PermissionError(str(refused))
    if refused.status < 0 or refused.status >= _CANCELLED:
        return ConnectionError(str(refused))
    return OSError(str(refused))
