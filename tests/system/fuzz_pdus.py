# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Random PDUs of hostile hosts, from a seed (RFC 7143, SPC-5, SBC-4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.system.lio_hosts import BLOCK
from tests.system.lio_node import SIZE
from tests.system.scsi_commands import commands

#: What is left out, since it harms a kernel: pages of docs/kernel-reports.
KNOWN_FAULTS = (
    "compare-and-write-attention login-before-authentication lun-reset-use-after-free"
    " one-login-at-a-time ordered-after-lost-connection pr-spec-i-pt preempt-and-abort"
    " read-memory"
)
LONGEST = 128 * 1024  # of a READ
NOP, COMMAND, TASK, LOGIN, TEXT, DATA_OUT, LOGOUT, SNACK = 0, 1, 2, 3, 4, 5, 6, 16
IMMEDIATE, NO_TAG = 0x40, b"\xff" * 4
_FINAL, _READ, _WRITE, _SIMPLE, _ORDERED, _COMPARE_AND_WRITE = 128, 64, 32, 1, 2, 0x89
#: Byte 1 of a command: final, R and W, a reserved bit, and the task attribute.
PATTERNS = [byte for byte in range(256) if byte & 16 == 0 and byte & 7 != _ORDERED]
#: By the first three bits of an opcode: length of the command, place of its length.
_GROUPS = ((6, 4, 1), (10, 7, 2), (10, 7, 2), (32, 28, 4), (16, 10, 4), (12, 6, 4))
_PLACES = {0x5F: (10, 5, 4), 0x1D: (6, 3, 2), 0x3B: (10, 6, 3)}
#: Opcodes without data, and those that read blocks or bytes; some are not of LIO. A
#: READ of nothing makes LIO end the connection, so it is rare.
_PLAIN = bytes.fromhex("00 01 04 16 17 1b 1e 2f 34 35 52 56 57 8f 90 91 af")
_BLOCKS = bytes.fromhex("08 28 88 a8 3c")
_BYTES = bytes.fromhex("03 12 1a 25 4d 5a 5e 84 9e a0 a3 ab")
_LISTS = bytes.fromhex("04 15 1d 3b 42 4c 55 5f 7f 83 84 9e 9f a2 a3 a4 b5")
_PAGES = bytes.fromhex("00 01 03 05 06 07 08 0a 1c 3f 80 83 86 b0 b1 b2")
_LUNS = (bytes([0, 1]), bytes([0, 255]), bytes([0x40, 0]), bytes([0xC1, 1]), NO_TAG * 2)
#: The default group, to standby.
_SET_PORT_GROUPS = (
    bytes.fromhex("a40a00000000000000080000"),
    bytes([0, 0, 0, 0, 2, 0, 0, 0]),
)
#: Keys of logins and text requests, and values for any of them.
_KEYS = """
    SendTargets TargetName InitiatorName TargetAlias SessionType AuthMethod CHAP_A
    CHAP_I CHAP_C CHAP_N CHAP_R HeaderDigest DataDigest InitialR2T MaxConnections
    ImmediateData MaxRecvDataSegmentLength MaxBurstLength FirstBurstLength IFMarkInt
    DefaultTime2Wait DefaultTime2Retain ErrorRecoveryLevel MaxOutstandingR2T
    DataPDUInOrder OFMarker RDMAExtensions TaskReporting iSCSIProtocolLevel
    TargetPortalGroupTag X-com.example.key
"""
_NAMES = {each.encode() for each in _KEYS.split()}
_VALUES = """
    Yes No None All CRC32C CHAP CHAP,None,SRP KRB5 5 7 Normal Discovery 0 1 2 -1 512
    65536 16777215 16777216 4294967296 0x 0xffff 0bAAAA= 1,2 Reject Irrelevant ? %s
"""
_ODD_VALUES = ["", "=", "\x01\xff", "x" * 255, "1" * 3000, "0x" + "ab" * 1200]


@dataclass(frozen=True)
class Pdu:
    """One PDU, without the numbers that a session counts.

    ``word`` is bytes 20 to 23, ``tail`` the last 16. ``later`` is the data for the
    target's requests; ``shift`` is added to the session's next CmdSN.
    """

    opcode: int
    flags: int = _FINAL
    word: bytes = NO_TAG
    tail: bytes = bytes(16)
    lun: bytes = b""
    second: bytes = bytes(2)
    extension: bytes = b""
    data: bytes = b""
    later: bytes = b""
    shift: int = 0

    @property
    def answered(self) -> bool:
        """Whether a target has to answer it, and what came before it."""
        return self.opcode & 63 in (COMMAND, TEXT) and not self.shift

    def kinds(self) -> Iterator[tuple[str, object]]:
        """What is counted: each kind of thing in this PDU, and which one it is."""
        kind = self.opcode & 63
        yield "PDU opcodes", kind
        if kind == COMMAND:
            yield from (("opcodes", self.tail[0]), ("flag patterns", self.flags))
            if self.later:
                yield "actions with lists", self.tail[:2]
        elif kind == TASK:
            yield "task functions", self.flags & 127
        elif kind in (LOGIN, TEXT):
            if kind == LOGIN:
                yield "login stages", self.flags
            names = {each.partition(b"=")[0] for each in self.data.split(b"\0")}
            yield from (("text keys", name) for name in names & _NAMES)


class Pdus:
    """An endless row of them. ``serials``: the volumes that a copy may name.

    A host with ``compares`` sends COMPARE AND WRITE.
    """

    def __init__(self, seed: object, serials: Iterable[str], compares: bool) -> None:
        self.random, self._compares = Random(str(seed)), compares
        self._choice, self._some = self.random.choice, self.random.randbytes
        self._writes = [pair for each in serials for pair in commands(each).values()]
        self._writes.append(_SET_PORT_GROUPS)
        made = {self._asking: 30, self._written: 32, self._listed: 15, self._any: 18}
        self._kinds = made | {self._task: 1.5, self._text: 1.5, self._strange: 0.5}

    def burst(self, longest: int) -> list[Pdu]:
        """Some PDUs that are sent without waiting; a few of them spoiled."""
        kinds, weights = list(self._kinds), list(self._kinds.values())
        made = self.random.choices(kinds, weights, k=self.random.randint(1, longest))
        sent = [self._spoiled(make()) if self._rarely(200) else make() for make in made]
        return [e for e in sent if self._compares or e.tail[0] != _COMPARE_AND_WRITE]

    def logins(self, initiator: str, iqn: str) -> list[Pdu]:
        """One to three PDUs of a login: stages, versions and keys."""
        kind = self._choice(("Normal", "Normal", "Normal", "Discovery"))
        names = f"InitiatorName={initiator}\0TargetName={iqn}\0SessionType={kind}\0"
        text = names.encode() + b"AuthMethod=None,CHAP\0"
        isid = bytes([0x80, 0, 0, 0, 0, self.random.randint(1, 255)])
        made = []
        for _ in range(self.random.randint(1, 3)):
            flags = self._choice((0x81, 0x87, 0x01, 0x04, 0x87, 0x81, self._byte()))
            second, handle = (
                self._choice((bytes(2), bytes(2), self._some(2))) for _ in "vt"
            )
            head = Pdu(LOGIN | IMMEDIATE, flags, bytes(4), lun=isid + handle)
            made.append(replace(head, second=second, data=text + self._keys()))
            text = b""
        return [*made, self._spoiled(self._asking())] if self._rarely(8) else made

    def _keys(self) -> bytes:
        values = _VALUES.split() + _ODD_VALUES
        names = self.random.choices(_KEYS.split(), k=self.random.randint(0, 5))
        pairs = (f"{name}={self._choice(values)}\0" for name in names)
        text = "".join(pairs).encode("latin-1")
        return text[: self.random.randint(0, len(text))] if self._rarely(10) else text

    # Commands

    def _asking(self) -> Pdu:
        """A command that reads, or has no data."""
        if self._rarely(4):
            return self._sized(self._choice(_PLAIN), self._choice((0, 1, 8)), 0)
        if self._rarely(2):
            blocks = self._choice((1, 8))
            return self._sized(self._choice(_BLOCKS), blocks, blocks * BLOCK)
        length = self._choice((8, 32, 96, 255))
        return self._sized(self._choice(_BYTES), length, length)

    def _sized(self, code: int, told: int, length: int, data: bytes = b"") -> Pdu:
        """A service action and a page, and ``told`` where this command's length is."""
        size, at, width = _PLACES.get(code) or (*_GROUPS, *_GROUPS[:2])[code >> 5]
        cdb = bytearray(self._some(size) if self._rarely(9) else size)
        cdb[0], cdb[2] = code, self._choice(_PAGES)
        cdb[1] = self._choice((0, 1, self.random.randint(0, 31)))
        if code == 0x7F:
            cdb[7:10] = bytes([24, 0, self.random.randint(0, 31)])
        elif code in _BLOCKS + _PLAIN:
            cdb[1:at] = bytes(at - 1)
        cdb[at : at + width] = (told & (256**width - 1)).to_bytes(width, "big")
        flag = _WRITE if data else _READ if length else 0
        return self._command(bytes(cdb), flag, length, data)

    def _written(self) -> Pdu:
        cdb, data = self._choice(self._writes)
        flag = self._choice((_READ, *(_WRITE,) * 5)) if data else 0
        return self._command(self._changed(cdb), flag, len(data), data)

    def _listed(self) -> Pdu:
        """A service action with a parameter list: of a real command, or of lengths."""
        length = self._choice((4, 8, 16, 24, 64, 128, 512, 1024))
        head = self._choice((0, length, length - 2, 255, 65535)).to_bytes(2, "big")
        made = (head * 2 + self._some(length))[:length]
        real = self._choice(self._writes)[1]
        data = self._changed(real) if real and self._rarely(2) else made
        return self._sized(self._choice(_LISTS), len(data), len(data), data)

    def _any(self) -> Pdu:
        """Any opcode, with anything."""
        cdb = bytes([self._byte()]) + self._some(self._length(31))
        data = self._some(self._length(1024))
        flag = self._choice((_READ, _WRITE, 0))
        return self._command(cdb, flag, self._length(8 * BLOCK), data)

    def _command(self, cdb: bytes, flag: int, length: int, data: bytes) -> Pdu:
        more, data = cdb[16:], data if flag == _WRITE else b""
        at_once = data or self._some(BLOCK)  # also of a command that reads
        length = len(data) if flag == _WRITE else length if flag else 0
        if self._rarely(200):
            length = self._choice((0, 1, 511, 512, 4096, 65537, LONGEST))
        return Pdu(
            COMMAND | (IMMEDIATE if self._rarely(200) else 0),
            self._choice(PATTERNS) if self._rarely(40) else _FINAL | flag | _SIMPLE,
            length.to_bytes(4, "big"),
            cdb[:16].ljust(16, b"\0"),
            self._choice(_LUNS) if self._rarely(30) else b"",
            extension=bytes([0, len(more) + 1, 1, 0]) + more if more else b"",
            data=at_once if self._rarely(50) else b"",  # LIO ends the connection
            later=data,
        )

    def _changed(self, old: bytes) -> bytes:
        """The same, somewhere on the disk, or with some bytes changed."""
        new, blocks = bytearray(old), old[0] not in _BYTES + _LISTS
        if blocks and len(new) in (10, 12, 16) and self._rarely(2):
            end = 10 if len(new) == 16 else 6
            new[end - 4 : end] = self.random.randrange(SIZE // BLOCK).to_bytes(4, "big")
        for _ in range(self._choice((0, 0, 0, 0, 1, 2))):
            new[self.random.randrange(len(new))] = self._byte()
        return bytes(new)

    # Other PDUs

    def _task(self) -> Pdu:
        function = self._choice((1, 1, 1, 2, 3, 4, 6, 7, 8, 14, 127, 0))
        tag = self.random.randint(0, 40).to_bytes(4, "big")
        lun = self._choice(_LUNS) if self._rarely(10) else b""
        return Pdu(TASK | IMMEDIATE, _FINAL | function, tag, lun=lun)

    def _text(self) -> Pdu:
        tag = self._some(4) if self._rarely(8) else NO_TAG
        return Pdu(TEXT, self._choice((0x80, 0x80, 0, 0x40)), tag, data=self._keys())

    def _strange(self) -> Pdu:
        """What ends a connection, or should: data, SNACK, a logout, no opcode."""
        kind = self._choice((NOP, DATA_OUT, SNACK, LOGOUT, LOGIN, self._byte() & 63))
        tail = bytes(8) + self._some(8) if self._rarely(2) else bytes(16)
        word = self._choice((NO_TAG, bytes(4), self._some(4)))
        data = self._some(self._length(600)) if kind != SNACK else b""
        return Pdu(kind, _FINAL | self._choice((0, 1, 3)), word, tail, data=data)

    def _spoiled(self, pdu: Pdu) -> Pdu:
        """One part of it is changed."""
        if self._rarely(5):
            return replace(pdu, shift=self._choice((-1, 1, 2, 1000, 2**31)))
        lengths = {"second": 2, "lun": 8, "tail": 16, "extension": self._length(64) * 4}
        name = self._choice([*lengths])
        return replace(pdu, **{name: self._some(lengths[name])})  # type: ignore[arg-type]

    def _rarely(self, one_of: int) -> bool:
        return self.random.randrange(one_of) == 0

    def _byte(self) -> int:
        return self.random.randrange(256)

    def _length(self, most: int) -> int:
        return self._choice((0, 1, most, self.random.randint(0, most)))
