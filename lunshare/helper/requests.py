# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a request is, and the arguments that are not of one part of the helper only.

The client is not trusted: an attacker may have the daemon's user. What does not have
its form is refused before anything is done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lunshare.drivers import request_ids
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import forms

#: No command and no verb may occupy a thread for longer than this.
MAX_SECONDS = 86400.0

_MOST_WORDS = 10_000  # ``rules`` allows fewer, and says so with the command
# A part of a path below /dev; in the first two any user may write.
_PART = re.compile("(?!(?:shm|mqueue|fd)$)[A-Za-z0-9_+:-][A-Za-z0-9_+.:-]*")

#: What a path in a request consists of.
PRINTABLE = re.compile("[ -~]*")


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


#: The fields of a disk, besides the id of its volume.
DISK: dict[str, forms.Form[Any]] = {
    "path": forms.text(PRINTABLE, "give printable ASCII"),
    "size": forms.integer(0, 2**63 - 1),
    "kind": forms.member(DiskKind),
}
_NAMED_DISK = forms.record(Disk, volume_id=forms.uuid, **DISK)
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
_ARGV = forms.record(lambda argv: argv, argv=forms.many(forms.text(), _MOST_WORDS))
_DISKS = forms.record(
    lambda source, target: (source, target), source=_NAMED_DISK, target=_NAMED_DISK
)
_DEVICE = forms.record(lambda device: device, device=forms.text())
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


def nothing(arguments: Mapping[str, Any]) -> None:
    """Check that there are no arguments."""
    _NOTHING("", arguments)
