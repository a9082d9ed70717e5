# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A hostile host: an iSCSI session that sends arbitrary commands (RFC 7143).

libiscsi sets the R and W flags by the type of a command and has no commands longer
than 16 bytes. Here the test chooses both.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence

_NOP_OUT, _COMMAND, _TASK, _LOGIN, _DATA_OUT = 0x00, 0x01, 0x02, 0x03, 0x05
_LOGOUT, _THE_CONNECTION = 0x06, 1
_NOP_IN, _RESPONSE, _TASK_RESPONSE, _LOGIN_RESPONSE = 0x20, 0x21, 0x22, 0x23
_DATA_IN, _R2T, _REJECT = 0x25, 0x31, 0x3F
_IMMEDIATE, _FINAL, _STATUS_HERE = 0x40, 0x80, 0x01
_NO_TAG = 0xFFFFFFFF
_HEADER = 48
_FULL_FEATURE, _ROUNDS = 3, 5
# A key that one side omits is proposed by the other, which waits for an answer.
_KEYS = {
    "InitialR2T": "No",
    "ImmediateData": "Yes",
    "MaxRecvDataSegmentLength": 262144,
    "MaxBurstLength": 262144,
    "FirstBurstLength": 65536,
    "MaxConnections": 1,
    "MaxOutstandingR2T": 1,
    "DefaultTime2Wait": 2,
    "DefaultTime2Retain": 20,
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
    "ErrorRecoveryLevel": 0,
    "IFMarker": "No",
    "OFMarker": "No",
}
_CDB = 16
#: The F, R and W flags of a command, by their names in the table.
FLAGS = {"R": 0xC0, "R and data": 0xC0, "W": 0xA0, "-": 0x80}
#: More of them, which no host needs; some say that data follows by itself.
WRONG_FLAGS = {
    "W and data": 0xA0,
    "- and data": 0x80,
    "R, W and data": 0xE0,
    "R, W": 0xE0,
    "W, not final": 0x20,
    "W, not final, and data": 0x20,
    "R, not final, and data": 0x40,
}
TASK_FUNCTIONS = {
    "ABORT TASK SET": 2,
    "CLEAR ACA": 3,
    "CLEAR TASK SET": 4,
    "LUN RESET": 5,
    "TARGET WARM RESET": 6,
    "TARGET COLD RESET": 7,
}


class RawSession:
    """One login, without CHAP; LUN 0. Answers are texts: ``GOOD``, ``07/27/00``.

    ``keys`` are sent with the login; ``number`` is in its ISID. Without ``iqn`` it is
    a discovery session. ``answered`` has the target's keys.
    """

    _STAGES = 0x87  # from the operational stage to the end of the login

    def __init__(
        self,
        initiator: str,
        iqn: str,
        portal: str,
        keys: Sequence[str] = (),
        number: int = 1,
        *,
        patience: float = 5.0,
    ) -> None:
        """``patience``: seconds for each answer."""
        address, _, port = portal.rpartition(":")
        where = address.strip("[]"), int(port)
        self._socket = socket.create_connection(where, patience)
        self._tag, self._status_number, self._command_number = 0, 0, 1
        self.answered: dict[str, str] = {}
        try:
            self._login(initiator, iqn, keys, number)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def command(
        self,
        cdb: bytes,
        flag: str,
        data: bytes = b"",
        expected: int | None = None,
        follows: bool = False,
    ) -> str:
        """Send a command with one of FLAGS; returns the answer.

        Data of a W waits for the target's request if the target wants that; data of a
        name with "and data" does not. ``expected`` is another Expected Data Transfer
        Length than that of the data; with ``follows`` a Data-Out follows at once.
        """
        if expected is None:
            expected = len(data) if flag != "-" else 0
        at_once = flag == "W" and self.answered.get("ImmediateData") == "Yes"
        sent = data if at_once or flag.endswith("and data") else b""
        try:
            self.ask(cdb, flag, expected, sent)
            if follows:
                self._put(struct.pack(">II", self._tag, _NO_TAG), 0, data)
            return next(self._answers(data))
        except (ConnectionError, TimeoutError) as error:
            return type(error).__name__

    def ask(self, cdb: bytes, flag: str, expected: int, data: bytes = b"") -> None:
        """Send a command, and receive nothing."""
        self._tag += 1
        more = cdb[_CDB:]
        extension = struct.pack(">HBx", len(more) + 1, 1) + more if more else b""
        fields = struct.pack(
            ">IIII", self._tag, expected, self._command_number, self._status_number
        )
        self._command_number += 1
        flags = (FLAGS | WRONG_FLAGS)[flag] | 1
        header = bytes([_COMMAND, flags]) + bytes(14) + fields
        self._send(header + cdb[:_CDB].ljust(_CDB, b"\0"), extension, data)

    def data_out(self, tag: int, data: bytes) -> str:
        """Send a Data-Out that nobody has asked for; returns the answer to a ping."""
        try:
            self._put(struct.pack(">II", tag, _NO_TAG), 0, data)
            return self.task("ABORT TASK SET")
        except ConnectionError as error:
            return type(error).__name__

    def task(self, function: str) -> str:
        """Send one of TASK_FUNCTIONS; returns the number of the response."""
        self._tag += 1
        kind = _FINAL | TASK_FUNCTIONS[function]
        numbers = struct.pack(
            ">III", _NO_TAG, self._command_number, self._status_number
        )
        header = bytes([_TASK | _IMMEDIATE, kind]) + bytes(14)
        self._send(header + struct.pack(">I", self._tag) + numbers + bytes(16))
        try:
            return next(self._answers(b""))
        except (ConnectionError, TimeoutError) as error:
            return type(error).__name__

    def close_connection(self) -> None:
        """Log out the connection, not the session; wait until the target closes it."""
        numbers = struct.pack(">II", self._command_number, self._status_number)
        first = bytes([_LOGOUT | _IMMEDIATE, _FINAL | _THE_CONNECTION]) + bytes(14)
        self._send(first + bytes(8) + numbers + bytes(16))
        with contextlib.suppress(ConnectionError):
            while True:
                self._receive()

    def _answers(self, data: bytes) -> Iterator[str]:
        """Yield the answers, and serve the target's requests meanwhile."""
        while True:
            header, body = self._receive()
            operation = header[0] & 0x3F
            if operation == _RESPONSE:
                yield _status(header[3], body)
            elif operation == _DATA_IN and header[1] & _STATUS_HERE:
                yield _status(header[3], b"")
            elif operation == _TASK_RESPONSE:
                yield f"response {header[2]}"
            elif operation == _REJECT:
                yield f"rejected {header[2]:#04x}"
            elif operation == _R2T:
                self._give(header, data)
            elif operation == _NOP_IN and header[20:24] != b"\xff" * 4:
                self._pong(header)

    def _give(self, header: bytes, data: bytes) -> None:
        """Data-Out for a ready-to-transfer."""
        offset, wanted = struct.unpack(">II", header[40:48])
        part = data[offset : offset + wanted].ljust(wanted, b"\0")
        self._put(header[16:24], offset, part)

    def _put(self, tags: bytes, offset: int, data: bytes) -> None:
        number = struct.pack(">I", self._status_number)
        last = struct.pack(">II", 0, offset)
        first = bytes([_DATA_OUT, _FINAL]) + bytes(14) + tags + bytes(4)
        self._send(first + number + bytes(8) + last, b"", data)

    def _pong(self, header: bytes) -> None:
        numbers = struct.pack(">II", self._command_number, self._status_number)
        first = bytes([_NOP_OUT | _IMMEDIATE, _FINAL]) + bytes(6) + header[8:16]
        self._send(
            first + struct.pack(">I", _NO_TAG) + header[20:24] + numbers + bytes(16)
        )

    def _login(
        self, initiator: str, iqn: str, keys: Sequence[str], number: int
    ) -> None:
        words = [f"InitiatorName={initiator}", "HeaderDigest=None", "DataDigest=None"]
        if iqn:
            words += [f"TargetName={iqn}", "SessionType=Normal"]
        else:
            words += ["SessionType=Discovery"]
        words += [f"{name}={value}" for name, value in _KEYS.items()]
        text = "\0".join([*words, *keys, ""]).encode()
        isid = bytes([0x80, 0, 0, 0, 0, number])
        first = bytes([_LOGIN | _IMMEDIATE, self._STAGES, *bytes(6)]) + isid + bytes(2)
        for _ in range(_ROUNDS):
            numbers = (0, 0, 0, self._command_number, self._status_number)
            self._send(first + struct.pack(">IHHII", *numbers) + bytes(16), b"", text)
            header, body = self._receive()
            pairs = (each.partition("=") for each in body.decode().split("\0"))
            self.answered |= {name: value for name, _, value in pairs}
            if header[0] != _LOGIN_RESPONSE or header[36]:
                raise ConnectionError(f"login answered {header[36]}/{header[37]}")
            # The target may send keys of its own before it continues.
            if header[1] & _FINAL and header[1] & 3 == _FULL_FEATURE:
                return
            if not self._STAGES:
                return
            text = b""
        raise ConnectionError("the login does not end")

    def _send(self, header: bytes, extension: bytes = b"", data: bytes = b"") -> None:
        padded = extension.ljust(-(-len(extension) // 4) * 4, b"\0")
        lengths = bytes([len(padded) // 4]) + len(data).to_bytes(3, "big")
        complete = header[:4] + lengths + header[8:]
        assert len(complete) == _HEADER, len(complete)
        self._socket.sendall(complete + padded + data + bytes(-len(data) % 4))

    def _receive(self) -> tuple[bytes, bytes]:
        header = self._exactly(_HEADER)
        length = int.from_bytes(header[5:8], "big")
        body = self._exactly(4 * header[4] + length + -length % 4)
        if header[0] & 0x3F not in (_DATA_IN, _R2T) or header[1] & _STATUS_HERE:
            number = int.from_bytes(header[24:28], "big")
            self._status_number = (number + 1) % 2**32
        return header, body[:length]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the target has closed the connection")
            data += more
        return data


class UnfinishedLogin(RawSession):
    """A login that stays in its first stage, where the host proves nothing yet."""

    _STAGES = 0


def _status(status: int, body: bytes) -> str:
    if status == 0:
        return "GOOD"
    if status != 2 or len(body) < 4:
        return f"status {status:#04x}"
    sense = body[2:]
    if sense[0] & 0x7F >= 0x72:
        return f"{sense[1] & 15:02x}/{sense[2]:02x}/{sense[3]:02x}"
    return f"{sense[2] & 15:02x}/{sense[12]:02x}/{sense[13]:02x}"
