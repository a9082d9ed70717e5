# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile hosts that send random PDUs, and the honest host that writes beside them.

A host obeys what the target needs to execute commands at all: it counts CmdSN, gives
data that is asked for, answers pings, receives everything, and logs in again when a
connection has ended. It counts what the target answers.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.system.fuzz_pdus import IMMEDIATE, NOP, Pdu, Pdus
from tests.system.hosts import block
from tests.system.lio_checks import WRITERS_AT
from tests.system.lio_hosts import CHECK_CONDITION, Refused, Session
from tests.system.raw_iscsi import RawSession

_BURST = 16  # LIO's window is 64 commands
_LOGIN_SECONDS, _SILENCE, _QUIET, _PAUSE = 0.5, 0.5, 0.05, 0.02
_DATA_IN, _R2T, _REJECT, _NOP_IN, _ASYNC, _LOGOUT = 0x25, 0x31, 0x3F, 0x20, 0x32, 0x26
_LOGIN_RESPONSE = 0x23
_NAMES = {0x22: "task answered", 0x24: "text answered", _NOP_IN: "NOP answered"}
STATUS = {0: "GOOD", 2: "CHECK CONDITION"}
_ATTENTION, _TASK_ABORTED = 6, 0x40


class Attacker(RawSession):
    """A session of a host that sends bursts of PDUs."""

    def __init__(
        self, counts: Counter[str], initiator: str, iqn: str, portal: str
    ) -> None:
        self._counts, self._place = counts, (initiator, iqn, portal)
        self._open: dict[bytes, Pdu] = {}
        super().__init__(*self._place)
        counts["logins"] += 1

    def attack(self, pdus: Pdus) -> None:
        """Send a burst and a ping, and receive until all are answered, or it is quiet.

        :raises OSError: the connection has ended, or nothing came for _SILENCE seconds.
        """
        made = pdus.burst(_BURST)
        sent = [(self._post(pdu), pdu.answered) for pdu in made]
        self._counts["sent"] += len(sent)
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
        made = pdus.logins(*self._place[:2])
        self._counts["sent"] += len(made)
        if any(self._enters(pdu) for pdu in made):
            self._counts["entered"] += 1
            super().attack(pdus)
        raise ConnectionError("these logins are sent")

    def _enters(self, pdu: Pdu) -> bool:
        self._post(pdu)
        header, _ = self._receive()
        told = header[0] == _LOGIN_RESPONSE
        self._counts[f"login {told and header[36]}"] += 1
        return told and not header[36] and header[1] & 0x83 == 0x83


def attack(
    kind: type[Attacker],
    place: tuple[str, ...],
    pdus: Pdus,
    wanted: int,
    stopped: Callable[[], bool],
) -> Counter[str]:
    """Send so many PDUs, unless ``stopped``, in sessions one after the other."""
    counts: Counter[str] = Counter()
    while counts["sent"] < wanted and not stopped():
        try:
            with contextlib.closing(kind(counts, *place)) as session:
                while counts["sent"] < wanted and not stopped():
                    session.attack(pdus)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            counts["silent" if late else "connections ended"] += 1
    return counts


@dataclass
class Writing:
    """What an honest host has seen; resets are UNIT ATTENTION and TASK ABORTED."""

    rounds: int = 0
    slowest: float = 0.0
    resets: int = 0
    error: str = ""


def write(place: tuple[str, str, str], stopped: Callable[[float], bool]) -> Writing:
    """Write a block and read it, until ``stopped`` or an error; in one session."""
    seen = Writing()
    with contextlib.closing(Session(*place)) as host:
        while not stopped(_PAUSE) and not seen.error:
            began = time.monotonic()
            try:
                host.write(WRITERS_AT, block(f"round {seen.rounds}"))
                host.read(WRITERS_AT)
                seen.rounds += 1
            except Refused as refused:
                attention = (refused.status, refused.key) == (
                    CHECK_CONDITION,
                    _ATTENTION,
                )
                reset = attention or refused.status == _TASK_ABORTED
                seen.resets += reset
                seen.error = "" if reset else str(refused)
            seen.slowest = max(seen.slowest, time.monotonic() - began)
    return seen
