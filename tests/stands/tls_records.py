# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A client of TLS 1.3 that writes its records itself, also such as no library sends."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

HANDSHAKE, DATA = 22, 23
#: A message that changes the key of what follows (RFC 8446, 4.6.3); the second one
#: wants the same from its receiver.
KEY_UPDATE = b"\x18\x00\x00\x01\x00"
KEY_UPDATE_REQUESTED = b"\x18\x00\x00\x01\x01"


class RecordClient:
    """A connection after its handshake. It sends the records that it is told."""

    def __init__(self, port: int, secrets: Path) -> None:
        """Connect to 127.0.0.1. ``secrets``: a file for the keys, which is replaced."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(secrets)
        secrets.write_text("")
        self.wire = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._handshake()
        (line,) = [
            line
            for line in secrets.read_text().splitlines()
            if line.startswith("CLIENT_TRAFFIC_SECRET_0")
        ]
        self._take_secret(bytes.fromhex(line.split()[2]))

    def _handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.wire.sendall(self._outgoing.read())
                self._incoming.write(self.wire.recv(65536))
            else:
                self.wire.sendall(self._outgoing.read())
                return

    def read(self) -> bytes:
        """Wait for data; return it."""
        while True:
            try:
                return self._tls.read(65536)
            except ssl.SSLWantReadError:
                self._incoming.write(self.wire.recv(65536))

    def _take_secret(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._cipher = AESGCM(_expand(secret, b"key", 32))
        self._nonce = int.from_bytes(_expand(secret, b"iv", 12), "big")

    def record(self, data: bytes, kind: int = DATA) -> bytes:
        """Return the bytes of one record."""
        head = struct.pack("!BHH", DATA, 0x0303, len(data) + 1 + 16)
        nonce = (self._nonce ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._cipher.encrypt(nonce, data + bytes([kind]), head)

    def key_update(self, message: bytes = KEY_UPDATE) -> bytes:
        """Return the bytes of a KeyUpdate, and use the next key afterwards."""
        update = self.record(message, HANDSHAKE)
        self._take_secret(_expand(self._secret, b"traffic upd", len(self._secret)))
        return update


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    name = b"tls13 " + label
    info = struct.pack("!HB", size, len(name)) + name + b"\0"
    return HKDFExpand(hashes.SHA384(), size, info).derive(secret)
