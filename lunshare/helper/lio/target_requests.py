# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of lio.*, checked before they are carried out.

The client is not trusted: an attacker may have the daemon's user. Names become paths
below configfs, so each of them has a form. An error never contains a credential.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import (
    Auth,
    Connector,
    Disk,
    Export,
    Mode,
    Portal,
    iscsi_name,
)
from lunshare.helper import forms, portal_forms, requests

#: The hosts of one volume.
MAX_CONNECTORS = 10_000
_TAG = re.compile(r"(?!NULL)[A-Za-z0-9._:-]{0,63}")
# The kernel takes a value that starts with NULL for "not set" and stores less
# than 256 bytes (drivers/target/iscsi/iscsi_target_nacl_attrib, 6.1 and 6.12).
_CREDENTIAL = re.compile(r"(?!NULL)[!-~]{1,255}")
_AUTH_FIELDS = {"username", "password"}


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
        if self.only is not None:
            only = frozenset(self.only)
            self.concerned = tuple(
                [
                    connector
                    for connector in self.concerned
                    if connector.initiator in only
                ]
            )


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


def _apply(
    *,
    volume_id: str,
    disk: dict[str, Any] | None,
    connectors: tuple[Connector, ...],
    portals: tuple[Portal, ...],
    only: tuple[str, ...] | None,
    reservations: bool,
) -> Apply:
    if len(connectors) > 1 and _has_a_double(connectors):
        raise InvalidValue("connectors", "", "name each initiator once")
    volume_disk = None if disk is None else Disk(volume_id, **disk)
    return Apply(
        Export(volume_id, volume_disk, connectors, reservations), portals, only
    )


def _has_a_double(connectors: tuple[Connector, ...]) -> bool:
    return len({connector.initiator for connector in connectors}) < len(connectors)


def _initiator(name: str, given: object) -> str:
    if type(given) is not str or len(given) > forms.MAX_TEXT:
        return forms.typed(name, given, str)
    return iscsi_name(given, name)


_CONNECTOR = forms.record(
    Connector,
    initiator=_initiator,
    mode=forms.member(Mode),
    attachment_id=forms.text(_TAG, "give up to 63 letters, digits, ._:-"),
    auth=forms.optional(_auth),
)
_WANTED = forms.record(
    _apply,
    volume_id=forms.uuid,
    disk=forms.optional(forms.record(dict, **requests.DISK)),
    connectors=forms.many(_CONNECTOR, MAX_CONNECTORS),
    portals=portal_forms.portals,
    only=forms.optional(forms.many(_initiator, MAX_CONNECTORS)),
    reservations=forms.flag,
)
_VOLUME_ID = forms.record(lambda volume_id: volume_id, volume_id=forms.uuid)
_HOST = forms.record(
    lambda volume_id, initiator: (volume_id, initiator),
    volume_id=forms.uuid,
    initiator=_initiator,
)
_PREFIX = forms.record(
    lambda prefix: prefix, prefix=forms.text(requests.PRINTABLE, "give printable ASCII")
)


def volume_id(arguments: Mapping[str, Any]) -> str:
    """Check the argument of lio.remove, lio.live and lio.registrations."""
    return str(_VOLUME_ID("", arguments))


def host(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Check the arguments of lio.host: a volume's id, and an initiator."""
    return _HOST("", arguments)


def prefix(arguments: Mapping[str, Any]) -> str:
    """Check the argument of lio.check: the prefix of targets that the client uses."""
    return str(_PREFIX("", arguments))


def apply(arguments: Mapping[str, Any]) -> Apply:
    """Check the arguments of lio.apply."""
    return _WANTED("", arguments)
