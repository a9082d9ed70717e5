# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What may be asked, made into checked values before anything acts on it.

The other side is not trusted: it may be a daemon that was taken over. Names
become paths below configfs, so every one of them has a form. A credential
never becomes part of an error.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
    volume_uuid,
)

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.StrEnum)

#: No command and no verb may hold a thread for longer than this.
MAX_SECONDS = 86400.0
#: Values that one list may hold: the hosts of one volume, and more than any node has
#: addresses. And characters of a text: a path's most (PATH_MAX).
MAX_CONNECTORS, MAX_PORTALS, MAX_TEXT = 10_000, 16, 4096
# A part of a path below /dev; in the first two anyone may write.
_PART = re.compile("(?!(?:shm|mqueue|fd)$)[A-Za-z0-9_+:-][A-Za-z0-9_+.:-]*")
_ADDRESS = re.compile("[0-9a-fA-F:.]+")
_TAG = re.compile(r"(?!NULL)[A-Za-z0-9._:-]{0,63}")
# The kernel takes a value that begins with NULL for "not set" and keeps less
# than 256 bytes (drivers/target/iscsi/iscsi_target_nacl_attrib, 6.1 and 6.12).
_CREDENTIAL = re.compile(r"(?!NULL)[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Apply:
    """A wanted export; ``only`` as in lunshare.drivers.base.TargetDriver.apply."""

    export: Export
    portals: tuple[Portal, ...]
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A verb, the seconds it may take, and its arguments, not yet checked."""

    verb: str
    timeout: float
    arguments: Mapping[str, Any] = field(repr=False)


def request(message: object) -> Request:
    """Check the outer form of a request."""
    fields = typed("request", message, dict)
    timeout = fields.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise InvalidValue("timeout", timeout, "give seconds")
    if not 0 <= timeout <= MAX_SECONDS:
        raise InvalidValue("timeout", timeout, f"give 0 to {MAX_SECONDS:g} seconds")
    verb = typed("verb", fields.get("verb"), str)
    return Request(verb, timeout, typed("arguments", fields.get("arguments"), dict))


def argv(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command."""
    words = _texts("argv", only(arguments, "argv")["argv"])
    if not words:
        raise InvalidValue("argv", words, "name a command")
    return words


def two_disks(arguments: Mapping[str, Any]) -> tuple[Disk, Disk]:
    """The arguments of disk.copy."""
    given = only(arguments, "source", "target")
    source, target = (_named_disk(name, given[name]) for name in ("source", "target"))
    return source, target


def device(arguments: Mapping[str, Any]) -> str:
    """The one argument of lvm.commit: a disk as LVM names it."""
    path = typed("device", only(arguments, "device")["device"], str)
    below, name = path[:5], path[5:]
    if below != "/dev/" or not all(map(_PART.fullmatch, name.split("/"))):
        raise InvalidValue("device", path, "give a device's path below /dev")
    return path


def volume_id(arguments: Mapping[str, Any]) -> str:
    """The one argument of lio.remove."""
    return volume_uuid(only(arguments, "volume_id")["volume_id"])


def nothing(arguments: Mapping[str, Any]) -> None:
    """The arguments of a verb that has none."""
    only(arguments)


def apply(arguments: Mapping[str, Any]) -> Apply:
    """The arguments of lio.apply."""
    given = only(arguments, "volume_id", "disk", "connectors", "portals", "only")
    identity = given["volume_id"]  # Export looks at it
    connectors = _each("connectors", given["connectors"], _connector)
    if len({connector.initiator for connector in connectors}) < len(connectors):
        raise InvalidValue("connectors", "", "name each initiator once")
    return Apply(
        Export(identity, _disk(identity, given["disk"]), connectors),
        _each("portals", given["portals"], _portal),
        None if given["only"] is None else _initiators(given["only"]),
    )


def _disk(identity: str, given: object) -> Disk | None:
    return None if given is None else _some_disk(identity, given)


def _some_disk(identity: str, given: object) -> Disk:
    path, size, kind = _list("disk", given, 3)
    return Disk(
        identity,
        _printable("disk path", typed("disk path", path, str)),
        _size(typed("disk size", size, int)),
        _one_of("disk kind", kind, DiskKind),
    )


def _named_disk(name: str, given: object) -> Disk:
    identity, path, size, kind = _list(name, given, 4)
    return _some_disk(volume_uuid(identity), [path, size, kind])


def _connector(given: object) -> Connector:
    initiator, mode, attachment_id, auth = _list("connector", given, 4)
    if not isinstance(attachment_id, str) or not _TAG.fullmatch(attachment_id):
        raise InvalidValue(
            "attachment id", attachment_id, "give up to 63 letters, digits, ._:-"
        )
    return Connector(
        initiator,
        _one_of("mode", mode, Mode),
        attachment_id,
        None if auth is None else _auth(auth),
    )


def _auth(given: object) -> Auth:
    match given:
        case [str(username), str(password)]:
            if _CREDENTIAL.fullmatch(username) and _CREDENTIAL.fullmatch(password):
                return Auth(username, password)
    raise InvalidValue(
        "auth",
        "(not shown)",
        "give a name and a password of 1 to 255 ASCII characters without blanks,"
        " not beginning with NULL",
    )


def _portal(given: object) -> Portal:
    address, port = _list("portal", given, 2)
    # A scope id (fe80::1%eth0) is an interface's name: not part of a path.
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise InvalidValue("portal", address, "give an IPv4 or IPv6 address")
    return _portal_at(address, typed("portal port", port, int))


@functools.lru_cache
def _portal_at(address: str, port: int) -> Portal:
    """A node has a few: reading one takes as long as all else of a request."""
    return Portal(address, port)


def _initiators(given: object) -> tuple[str, ...]:
    return _each("only", given, iscsi_name)


def _size(size: int) -> int:
    if not 0 <= size < 2**63:
        raise InvalidValue("disk size", size, "give bytes, fewer than 2**63")
    return size


def _printable(name: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise InvalidValue(name, text, "give printable ASCII")
    return text


def _one_of(name: str, given: object, kind: type[_E]) -> _E:
    try:
        return kind(str(given))
    except ValueError:
        raise InvalidValue(name, given, f"give one of {', '.join(kind)}") from None


def only(given: Mapping[str, Any], *wanted: str) -> Mapping[str, Any]:
    """The arguments, if they are these and no others."""
    if given.keys() != set(wanted):
        raise InvalidValue(
            "arguments", sorted(given), f"give exactly: {', '.join(wanted) or 'none'}"
        )
    return given


def _each(name: str, given: object, make: Any) -> tuple[Any, ...]:
    items = typed(name, given, list)
    most = MAX_PORTALS if name == "portals" else MAX_CONNECTORS
    if len(items) > most:
        raise InvalidValue(name, f"{len(items)} values", f"give at most {most}")
    return tuple(make(item) for item in items)


def _texts(name: str, given: object) -> tuple[str, ...]:
    return _each(name, given, lambda item: typed(name, item, str))


def _list(name: str, given: object, length: int) -> list[Any]:
    found = typed(name, given, list)
    if len(found) != length:
        raise InvalidValue(name, f"{len(found)} values", f"give {length}")
    return found


def typed(name: str, given: object, kind: type[_T]) -> _T:
    """The value, if it is of that type."""
    if not isinstance(given, kind) or (kind is int and isinstance(given, bool)):
        raise InvalidValue(name, type(given).__name__, f"give a {kind.__name__}")
    if isinstance(given, str) and len(given) > MAX_TEXT:
        much = f"{len(given)} characters"
        raise InvalidValue(name, much, f"give at most {MAX_TEXT}")
    return given
