# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of lio.* and disk.copy, checked before they are carried out.

The client is not trusted: an attacker may have the daemon's user. Names become paths
below configfs, so each of them has a form. An error never contains a credential.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from lunshare.drivers import request_ids
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import (
    Auth,
    Connector,
    Disk,
    DiskKind,
    Export,
    Mode,
    Portal,
    iscsi_name,
)
from lunshare.helper import forms

#: No command and no verb may occupy a thread for longer than this.
MAX_SECONDS = 86400.0
#: The hosts of one volume, and more addresses than any node has.
MAX_CONNECTORS, MAX_PORTALS = 10_000, 16
# A part of a path below /dev; in the first two any user may write.
_PART = re.compile("(?!(?:shm|mqueue|fd)$)[A-Za-z0-9_+:-][A-Za-z0-9_+.:-]*")
# Without a scope id (fe80::1%eth0), which is the name of an interface.
_ADDRESS = re.compile("[0-9a-fA-F:.]+")
# Root's portal below 1024 would be in the place of another service, such as ssh.
_FIRST_OF_USERS, _SYSTEM_PORT = 1024, 860
_TAG = re.compile(r"(?!NULL)[A-Za-z0-9._:-]{0,63}")
# The kernel takes a value that starts with NULL for "not set" and stores less
# than 256 bytes (drivers/target/iscsi/iscsi_target_nacl_attrib, 6.1 and 6.12).
_CREDENTIAL = re.compile(r"(?!NULL)[!-~]{1,255}")
_AUTH_FIELDS = {"username", "password"}
_PRINTABLE = re.compile("[ -~]*")


# Not frozen: the constructor of a frozen class calls object.__setattr__ for each field.
@dataclass(slots=True)
class Apply:
    """A wanted export; ``only`` as in lunshare.drivers.base.TargetDriver.apply.

    ``concerned``: the wanted connectors that may be changed.
    """

    export: Export
    portals: tuple[Portal, ...]
    only: tuple[str, ...] | None = None
    concerned: tuple[Connector, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.concerned = self.export.connectors
        if (only := self.only) is not None:
            self.concerned = tuple(
                [each for each in self.concerned if each.initiator in only]
            )


@dataclass(slots=True)
class Request:
    """A verb, the seconds it may take, and its arguments, which are not checked yet.

    ``request_id`` is what the log lines of this request have.
    """

    protocol: int
    call: str
    timeout: float
    request_id: str
    arguments: Mapping[str, Any] = field(repr=False)


def _seconds(name: str, given: object) -> float:
    if type(given) is not float and type(given) is not int:  # a bool is neither
        raise InvalidValue(name, type(given).__name__, "give seconds")
    if not 0 <= given <= MAX_SECONDS:
        raise InvalidValue(name, given, f"give 0 to {MAX_SECONDS:g} seconds")
    return given


def _is_credential(given: object) -> bool:
    return type(given) is str and _CREDENTIAL.fullmatch(given) is not None


def _auth(name: str, given: object) -> Auth:
    if type(given) is dict and given.keys() == _AUTH_FIELDS:
        user, secret = given["username"], given["password"]
        if _is_credential(user) and _is_credential(secret):
            return Auth(user, secret)
    raise InvalidValue(
        name,
        "(not shown)",
        "give a username and a password of 1 to 255 ASCII characters without blanks,"
        " not starting with NULL",
    )


def _port(name: str, given: object) -> int:
    """A port that any user may have, or the system port of iSCSI (RFC 7143, 14)."""
    port = forms.integer(1, 65535)(name, given)
    if port < _FIRST_OF_USERS and port != _SYSTEM_PORT:
        raise InvalidValue(name, port, f"give {_SYSTEM_PORT}, or 1024 to 65535")
    return port


def _portals(name: str, given: object) -> tuple[Portal, ...]:
    """A list of portals. A node has one or two such lists, so checked ones are kept."""
    try:
        text = orjson.dumps(given)
    except TypeError:  # deeper than 254 levels, which orjson reads and does not write
        return _PORTALS(name, given)
    return _checked_portals(name, text)


@functools.lru_cache(maxsize=16)
def _checked_portals(name: str, text: bytes) -> tuple[Portal, ...]:
    return _PORTALS(name, orjson.loads(text))


def _apply(
    volume_id: str,
    disk: dict[str, Any] | None,
    connectors: tuple[Connector, ...],
    portals: tuple[Portal, ...],
    only: tuple[str, ...] | None,
) -> Apply:
    if len(connectors) > 1 and _has_a_double(connectors):
        raise InvalidValue("connectors", "", "name each initiator once")
    found = None if disk is None else Disk(volume_id, **disk)
    return Apply(Export(volume_id, found, connectors), portals, only)


def _has_a_double(connectors: tuple[Connector, ...]) -> bool:
    return len({each.initiator for each in connectors}) < len(connectors)


def _initiator(name: str, given: object) -> str:
    if type(given) is not str or len(given) > forms.MAX_TEXT:
        return forms.typed(name, given, str)
    return iscsi_name(given, name)


_DISK: dict[str, forms.Form[Any]] = {
    "path": forms.text(_PRINTABLE, "give printable ASCII"),
    "size": forms.integer(0, 2**63 - 1),
    "kind": forms.member(DiskKind),
}
_NAMED_DISK = forms.record(Disk, volume_id=forms.uuid, **_DISK)
_CONNECTOR = forms.record(
    Connector,
    initiator=_initiator,
    mode=forms.member(Mode),
    attachment_id=forms.text(_TAG, "give up to 63 letters, digits, ._:-"),
    auth=forms.optional(_auth),
)
_PORTAL = forms.record(
    Portal,
    address=forms.text(_ADDRESS, "give an IPv4 or IPv6 address"),
    port=_port,
)
_PORTALS = forms.many(_PORTAL, MAX_PORTALS)
_REQUEST = forms.record(
    Request,
    protocol=forms.integer(0, 2**31),
    call=forms.text(),
    timeout=_seconds,
    request_id=forms.text(
        request_ids.FORM, "give 1 to 64 letters, digits, dots, hyphens, underscores"
    ),
    arguments=forms.mapping,
)
_WANTED = forms.record(
    _apply,
    volume_id=forms.uuid,
    disk=forms.optional(forms.record(dict, **_DISK)),
    connectors=forms.many(_CONNECTOR, MAX_CONNECTORS),
    portals=_portals,
    only=forms.optional(forms.many(_initiator, MAX_CONNECTORS)),
)
_ARGV = forms.record(lambda argv: argv, argv=forms.many(forms.text(), MAX_CONNECTORS))
_DISKS = forms.record(
    lambda source, target: (source, target), source=_NAMED_DISK, target=_NAMED_DISK
)
_DEVICE = forms.record(lambda device: device, device=forms.text())
_VOLUME_ID = forms.record(lambda volume_id: volume_id, volume_id=forms.uuid)
_PREFIX = forms.record(
    lambda prefix: prefix, prefix=forms.text(_PRINTABLE, "give printable ASCII")
)
_NOTHING: forms.Form[dict[str, Any]] = forms.record(dict)


def request(message: object) -> Request:
    """Check the outer form of a request."""
    return _REQUEST("request", message)


def argv(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Check the arguments of run; return the words of the command."""
    words: tuple[str, ...] = _ARGV("", arguments)
    if not words:
        raise InvalidValue("argv", words, "name a command")
    return words


def two_disks(arguments: Mapping[str, Any]) -> tuple[Disk, Disk]:
    """Check the arguments of disk.copy."""
    source, target = _DISKS("", arguments)
    return source, target


def device(arguments: Mapping[str, Any]) -> str:
    """Check the argument of lvm.commit: a disk by the path that LVM shows."""
    path: str = _DEVICE("", arguments)
    below, name = path[:5], path[5:]
    if below != "/dev/" or not all(map(_PART.fullmatch, name.split("/"))):
        raise InvalidValue("device", path, "give a device's path below /dev")
    return path


def volume_id(arguments: Mapping[str, Any]) -> str:
    """Check the argument of lio.remove and lio.live."""
    return str(_VOLUME_ID("", arguments))


def prefix(arguments: Mapping[str, Any]) -> str:
    """Check the argument of lio.check: the prefix of targets that the client uses."""
    return str(_PREFIX("", arguments))


def nothing(arguments: Mapping[str, Any]) -> None:
    """Check that there are no arguments."""
    _NOTHING("", arguments)


def apply(arguments: Mapping[str, Any]) -> Apply:
    """Check the arguments of lio.apply."""
    return _WANTED("", arguments)
