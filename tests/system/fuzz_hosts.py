# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile hosts that send random PDUs, and an honest host beside them.

A host obeys what the target needs to execute commands at all: it counts CmdSN, gives
data that is asked for, answers pings, receives everything, and logs in again when a
connection has ended. It counts what the target answers.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.system.fuzz_pdus import IMMEDIATE, NOP, Pdu, Pdus
from tests.system.hosts import Traffic, block
from tests.system.raw_iscsi import RawSession

#: How often each thing was seen, and each kind of thing sent (``Pdu.kinds``).
Counts = Counter[str | tuple[str, object]]
_BURST = 16  # LIO's window is 64 commands
_LOGIN_SECONDS, _SILENCE, _QUIET = 0.5, 0.5, 0.05
_SLOW = 0.2  # seconds
_DATA_IN, _R2T, _REJECT, _NOP_IN, _ASYNC, _LOGOUT = 0x25, 0x31, 0x3F, 0x20, 0x32, 0x26
_LOGIN_RESPONSE = 0x23
_NAMES = {0x22: "task answered", 0x24: "text answered", _NOP_IN: "NOP answered"}
STATUS = {0: "GOOD", 2: "CHECK CONDITION"}


class Attacker(RawSession):
    """A session of a host that sends bursts of PDUs."""

    def __init__(self, counts: Counts, initiator: str, iqn: str, portal: str) -> None:
        self._counts, self._names = counts, (initiator, iqn)
        self._open: dict[bytes, Pdu] = {}
        super().__init__(initiator, iqn, portal)
        counts["logins"] += 1
        # Else the kernel stops soon (docs/kernel-reports/read-with-data.md).
        assert self.answered.get("ImmediateData", "No") == "No"

    def attack(self, pdus: Pdus) -> None:
        """Send a burst and a ping, and receive until all are answered, or it is quiet.

        :raises OSError: the connection has ended, or nothing came for _SILENCE seconds.
        """
        sent = [(self._attack(pdu), pdu.answered) for pdu in pdus.burst(_BURST)]
        wanted = {tag for tag, answered in sent if answered}
        ping = self._post(Pdu(NOP))
        self._socket.settimeout(_SILENCE)
        while ping in self._open or wanted & self._open.keys():
            try:
                self._serve(*self._receive())
            except TimeoutError:
                if ping in self._open:
                    raise
                return  # task management has stopped the others
            if ping not in self._open:
                self._socket.settimeout(_QUIET)

    def _attack(self, pdu: Pdu) -> bytes:
        self._counts["sent"] += 1
        self._counts.update(pdu.kinds())
        return self._post(pdu)

    def _post(self, pdu: Pdu) -> bytes:
        self._tag += 1
        tag = struct.pack(">I", self._tag)
        number = (self._command_number + pdu.shift) % 2**32
        if not pdu.opcode & IMMEDIATE and not pdu.shift:
            self._command_number += 1
        self._open[tag] = pdu
        first = bytes([pdu.opcode, pdu.flags]) + pdu.second + bytes(4)
        numbers = struct.pack(">II", number, self._status_number)
        header = first + pdu.lun.ljust(8, b"\0") + tag + pdu.word + numbers + pdu.tail
        self._send(header, pdu.extension, pdu.data)
        return tag

    def _serve(self, header: bytes, body: bytes) -> None:
        kind, tag = header[0] & 0x3F, header[16:20]
        if kind == _R2T:
            pdu = self._open.get(tag)
            self._give(header, pdu.later if pdu else b"")
        elif kind == _NOP_IN and header[20:24] != b"\xff" * 4:
            self._pong(header)
        elif kind == _REJECT:
            self._count("rejected", body[16:20])
            # LIO still waits for the number of a command that it has rejected.
            number = int.from_bytes(body[24:28], "big")
            self._post(Pdu(NOP, shift=number - self._command_number))
        elif kind in (_ASYNC, _LOGOUT):
            raise ConnectionError("the target ends the session")
        elif kind != _DATA_IN or header[1] & 1:
            name = _NAMES.get(kind) or STATUS.get(header[3], "another status")
            self._count(name, tag)

    def _count(self, name: str, tag: bytes) -> None:
        if self._open.pop(tag, None):
            self._counts[name] += 1


class Newcomer(Attacker):
    """A connection of a host that sends logins of its own."""

    def _login(self, *_: object) -> None:
        """Send nothing yet."""

    def attack(self, pdus: Pdus) -> None:
        """Send logins, and a burst after one that the target accepts.

        :raises OSError: always; each login has a connection of its own.
        """
        self._socket.settimeout(_LOGIN_SECONDS)
        if any(self._enters(pdu) for pdu in pdus.logins(*self._names)):
            self._counts["entered"] += 1
            super().attack(pdus)
        raise ConnectionError("these logins are sent")

    def _enters(self, pdu: Pdu) -> bool:
        self._attack(pdu)
        header, _ = self._receive()
        told = header[0] == _LOGIN_RESPONSE
        self._counts[f"login {told and header[36]}"] += 1
        return told and not header[36] and header[1] & 0x83 == 0x83


def attack(
    kind: type[Attacker],
    place: tuple[str, str, str],
    pdus: Pdus,
    wanted: int,
    ended: Callable[[], bool],
) -> Counts:
    """Send so many PDUs, unless ``ended``, in sessions one after the other."""
    counts: Counts = Counter()
    while counts["sent"] < wanted and not ended():
        try:
            with contextlib.closing(kind(counts, *place)) as session:
                while counts["sent"] < wanted and not ended():
                    session.attack(pdus)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            counts["silent" if late else "connections ended"] += 1
    return counts


class Honest(Traffic):
    """It writes a block if it may, and reads it, until a command fails.

    ``disturbed``: how often it has read another block than it has written. ``slow``:
    when long rounds began and ended; each begins with the end of the one before it.
    """

    disturbed = 0

    def __init__(self, *given: Any) -> None:
        self.slow: list[tuple[float, float]] = []
        self._ended = time.monotonic()
        super().__init__(*given)

    def delay(self, others: Iterable[Honest]) -> float:
        """How much longer one of its rounds took than two of others' in that moment.

        Two, since its disk has more to do: on a busy machine that takes longer, too.
        """
        calm = [times for each in others for times in each.slow]
        beside = (
            max((e - b for b, e in calm if b < ended and e > began), default=0.0)
            for began, ended in self.slow
        )
        both = zip(self.slow, beside, strict=True)
        return max((e - b - 2 * longest for (b, e), longest in both), default=0.0)

    def _round(self) -> None:
        data = block(f"round {self._rounds}")
        if writes := self._mode == "rw":
            self._session.write(self._at, data)
        self.disturbed += self._session.read(self._at) != data and writes
        began, self._ended = self._ended, time.monotonic()
        if self._ended - began > _SLOW:
            self.slow.append((began, self._ended))

    def __str__(self) -> str:
        times = f"{self._rounds} rounds, slowest {self.delay([]):.2f} s"
        return f"{self._mode}: {times}, disturbed {self.disturbed}, {self.error}"

    @property
    def error(self) -> str:
        """What has stopped it."""
        if self._stop.is_set() and self._thread.is_alive():
            return "waits for ever"
        return f"stopped by {self._error}" if self._error else ""
