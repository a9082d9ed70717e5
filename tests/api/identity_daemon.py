# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon with listeners, users and certificates, and raw requests to it."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import socket
import ssl
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.stands.daemon import Lunshared, configuration, ready
from tests.stands.servers import LOOPBACK

_TLS = "[tls]\ncert_file = {path}/cert.pem\nkey_file = {path}/key.pem"
#: bcrypt of "right password", with few rounds.
HASH = "$2b$04$agfPtHP10U86SKjzlRbbDu8MaRkTCH6DHPn435uG.UlWh8WLJZn8e"
PASSWORD = "right password"


class Running(Lunshared):
    """A daemon on a unix socket and on a port of loopback."""

    def __init__(self, path: Path, options: str = "", scheme: str = "") -> None:
        """``options``: lines of [DEFAULT], then sections; ``scheme`` of the port."""
        super().__init__(path, configuration(f"{options}\n{_TLS.format(path=path)}"))
        self.socket = str(path / "api.sock")
        self.listen = [f"unix:{self.socket}", f"{scheme}{LOOPBACK}:{self.port}"]

    def unix(self, method: str, path: str, **more: Any) -> Answer:
        """A request over the unix socket."""
        return self._send(UnixClient(self.socket), method, path, more)

    def http(self, method: str, path: str, **more: Any) -> Answer:
        """A request over TCP."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return self._send(connection, method, path, more)

    def https(self, method: str, path: str, **more: Any) -> Answer:
        """A request over TLS that trusts the certificate in the folder alone."""
        trusted = ssl.create_default_context(cafile=self.path / "cert.pem")
        connection = http.client.HTTPSConnection(
            "localhost", self.port, timeout=30, context=trusted
        )
        return self._send(connection, method, path, more)

    def basic(self, user: str, method: str, path: str, **more: Any) -> Answer:
        """A request over TCP of a user with the right password, unless given."""
        headers = proof(user, more.pop("password", PASSWORD)) | more.pop("headers", {})
        return self.http(method, path, headers=headers, **more)

    def _send(self, connection: Any, method: str, path: str, more: Any) -> Answer:
        headers = {"OpenStack-API-Version": "volume 3.71", **more.get("headers", {})}
        body = more.get("body")
        if body is not None:
            headers = {"Content-Type": "application/json", **headers}
            body = body if isinstance(body, bytes) else json.dumps(body)
        try:
            connection.request(method, path, body, headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()


class Answer:
    """Status, headers and body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        raw = response.read()
        self.body: Any = json.loads(raw) if raw else None

    @property
    def fault(self) -> tuple[int, str, str]:
        """Status, key and sentence of an error in Cinder's form."""
        assert isinstance(self.body, dict), self.status
        ((key, fault),) = self.body.items()
        assert fault["code"] == self.status
        return self.status, key, fault["message"]


class UnixClient(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


def daemon(
    path: Path, options: str = "", scheme: str = ""
) -> AbstractContextManager[Running]:
    """A daemon on a unix socket and on a port of loopback; ready."""
    return ready(Running(path, options, scheme))


def proof(user: str, password: str) -> dict[str, str]:
    """The header of HTTP Basic."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def users(path: Path, **roles: str) -> Path:
    """A file of users with the right password; a value is ROLES or ROLES:PROJECT."""
    lines = [f"{name}:{HASH}:{given}\n" for name, given in roles.items()]
    new = path / "users.new"
    new.write_text("".join(lines))
    new.rename(path / "users")
    return path / "users"


def certificate(path: Path, name: str = "localhost") -> None:
    """A new certificate and key of localhost in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (path / "key.pem").touch(mode=0o600)
    (path / "key.pem").write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (path / "cert.pem").write_bytes(made.public_bytes(pem))
