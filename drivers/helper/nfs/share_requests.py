# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What may be asked of a share's files; as ``requests`` does for the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.helper.lio import target_requests
from lunshare.drivers.helper.served import POINT
from lunshare.drivers.protocol import nfs_names

#: Of a file: owner alone, owner and group, everybody. Never executable.
_MODES = {"0600": 0o600, "0660": 0o660, "0666": 0o666}

# Below which directory, ``served`` says; what else the node mounts is not ours.
_POINT = re.compile(f"/[ -~]*/{POINT}")

# The kernel's loff_t, less a page.
_MOST = 2**63 - 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A share by its mount point, and a name in it if one is asked for."""

    point: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A file as it shall be. ``size`` in bytes; ``preallocate`` takes its room."""

    point: str
    name: str
    size: int
    preallocate: bool = False
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class Copied:
    """A file made of another's bytes. ``replace``: in the place of what is there."""

    point: str
    name: str
    source: str
    size: int
    preallocate: bool
    mode: int
    replace: bool
    clone: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody's file that shall become the volume ``name``."""

    point: str
    name: str
    reference: str
    size: int
    mode: int


def point(given: Mapping[str, Any]) -> Place:
    """The arguments of share.look, share.room and share.list."""
    target_requests.only(given, "point")
    return Place(_point(given))


def named(given: Mapping[str, Any]) -> Place:
    """Those of share.find, share.give and share.drop."""
    target_requests.only(given, "point", "name")
    return Place(_point(given), _name(given))


def make(given: Mapping[str, Any]) -> Made:
    """Those of share.make."""
    target_requests.only(given, "point", "name", "size", "preallocate", "mode")
    return Made(
        _point(given),
        _name(given),
        _size(given),
        target_requests.typed("preallocate", given["preallocate"], bool),
        _mode(given),
    )


def grow(given: Mapping[str, Any]) -> Made:
    """Those of share.grow."""
    target_requests.only(given, "point", "name", "size", "preallocate")
    preallocate = target_requests.typed("preallocate", given["preallocate"], bool)
    return Made(_point(given), _name(given), _size(given), preallocate)


def copy(given: Mapping[str, Any]) -> Copied:
    """Those of share.copy."""
    flags = ("preallocate", "replace", "clone")
    target_requests.only(given, "point", "name", "source", "size", "mode", *flags)
    return Copied(
        point=_point(given),
        name=_name(given),
        source=_name(given, "source"),
        size=_size(given),
        mode=_mode(given),
        **{flag: target_requests.typed(flag, given[flag], bool) for flag in flags},
    )


def take(given: Mapping[str, Any]) -> Taken:
    """Those of share.take."""
    target_requests.only(given, "point", "name", "reference", "size", "mode")
    reference = target_requests.typed("reference", given["reference"], str)
    if not nfs_names.is_foreign(reference):
        raise InvalidValue("reference", reference, "give a plain name, none of ours")
    return Taken(_point(given), _name(given), reference, _size(given), _mode(given))


def _point(given: Mapping[str, Any]) -> str:
    point = target_requests.typed("point", given["point"], str)
    if not _POINT.fullmatch(point):
        raise InvalidValue("point", point, "give a mount point of ours")
    return point


def _name(given: Mapping[str, Any], which: str = "name") -> str:
    name = target_requests.typed(which, given[which], str)
    if not nfs_names.is_managed(name):
        raise InvalidValue(which, name, "give volume-UUID or _snapshot-UUID")
    return name


def _size(given: Mapping[str, Any]) -> int:
    size = target_requests.typed("size", given["size"], int)
    if not 0 <= size <= _MOST:
        raise InvalidValue("size", size, f"give 0 to {_MOST} bytes")
    return size


def _mode(given: Mapping[str, Any]) -> int:
    try:
        return _MODES[given["mode"]]
    except (KeyError, TypeError):
        raise InvalidValue("mode", given["mode"], f"give {', '.join(_MODES)}") from None
