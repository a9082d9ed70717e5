# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where the API listens, and who may use it there.

A unix socket belongs to root and the group of the daemon. Every other address needs
TLS and a proof of identity, except that a loopback address may be without TLS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oslo_config import cfg

from lunshare.agent.model.errors import StartupError

_FORM = "give HOST:PORT, https://HOST:PORT, or unix:PATH, with an IPv6 HOST in [ ]"
_HTTPS = "https://"
_NAMES = frozenset({"localhost"})


@dataclass(frozen=True, slots=True)
class Address:
    """A checked address: (host, port) or the path of a unix socket."""

    bind: tuple[str, int] | str
    tls: bool = False

    @property
    def is_socket(self) -> bool:
        """Whether it is a unix socket, whose clients the kernel identifies."""
        return isinstance(self.bind, str)

    @property
    def loopback(self) -> bool:
        """Whether only processes of this machine can reach it."""
        if isinstance(self.bind, str):
            return True
        try:
            return ipaddress.ip_address(self.bind[0]).is_loopback
        except ValueError:
            return False  # the address of a name may change

    @property
    def every_address(self) -> bool:
        """Whether it is the wildcard: every address of this node."""
        if isinstance(self.bind, str):
            return False
        try:
            return ipaddress.ip_address(self.bind[0]).is_unspecified
        except ValueError:
            return False

    def __str__(self) -> str:
        if isinstance(self.bind, str):
            return f"unix:{self.bind}"
        host, port = self.bind
        named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"{_HTTPS}{named}" if self.tls else named


def configured(conf: cfg.ConfigOpts) -> list[Address]:
    """Return the addresses of the configuration; raise as ``parse`` does."""
    return parse(conf.listen, conf.auth_strategy, conf.noauth_on_loopback)


def parse(texts: Iterable[str], auth_strategy: str, noauth: bool) -> list[Address]:
    """Return the addresses of the option ``listen``.

    ``noauth``: the option noauth_on_loopback.

    :raises StartupError: the form of an address is unknown, there is none, one is
        named twice, or somebody could use the API who must not.
    """
    addresses = [_parse(text) for text in texts]
    if not addresses:
        raise StartupError(f"listen is empty: {_FORM}")
    if len({address.bind for address in addresses}) < len(addresses):
        raise StartupError("listen names an address twice: name each one once")
    for address in addresses:
        _check(address, auth_strategy, noauth)
    return addresses


def of_metrics(texts: Iterable[str]) -> list[Address]:
    """Return the addresses of the option ``metrics_listen``, which may be empty.

    :raises StartupError: the form of an address is unknown, or it is a unix socket.
    """
    addresses = [_parse(text, "metrics_listen") for text in texts]
    if any(address.is_socket for address in addresses):
        raise StartupError(
            "metrics_listen names a unix socket: give HOST:PORT; the sockets of listen"
            " have /metrics already"
        )
    return addresses


def hosts(addresses: Sequence[Address]) -> frozenset[str]:
    """Return the names and addresses by which clients reach these, in lower case."""
    names = {str(a.bind[0]).lower() for a in addresses if not a.is_socket}
    return frozenset(names) | _NAMES


def _parse(text: str, option: str = "listen") -> Address:
    if text.startswith("unix:/"):
        return Address(text.removeprefix("unix:"))
    host, separator, port = text.removeprefix(_HTTPS).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isdecimal() and int(port) < 65536):
        raise StartupError(f"{option} = {text} is not valid: {_FORM}")
    if "/" in host:
        raise StartupError(f"{option} = {text} is not valid: {_FORM}")
    if host == "localhost":
        host = "127.0.0.1"
    return Address((host, int(port)), tls=text.startswith(_HTTPS))


def _check(address: Address, auth_strategy: str, noauth: bool) -> None:
    """Refuse an address at which not every client proves its identity."""
    if address.is_socket:
        return
    if not address.loopback and not address.tls:
        raise StartupError(
            f"listen = {address} would send passwords and tokens in clear text: write"
            f" {_HTTPS}{address} and name the certificate in [tls], or listen on"
            " loopback"
        )
    if auth_strategy != "noauth":
        return
    if not address.loopback:
        raise StartupError(
            f"listen = {address} with auth_strategy = noauth would make everyone who"
            " reaches it an administrator: set auth_strategy to http_basic or keystone"
        )
    if not noauth:
        raise StartupError(
            f"listen = {address} with auth_strategy = noauth would make every account"
            " of this machine an administrator: listen on unix:PATH, set auth_strategy"
            " to http_basic or keystone, or set noauth_on_loopback = true"
        )
