# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of share.*, checked before they are carried out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.protocol import nfs_names
from lunshare.helper import forms
from lunshare.helper.served import POINT

# Of a file: for the owner; for owner and group; for all. Never executable.
_MODES = {"0600": 0o600, "0660": 0o660, "0666": 0o666}

# ``served`` checks below which directory it is.
_POINT = re.compile(f"/[ -~]*/{POINT}")

# The kernel's loff_t, less a page.
_MOST = 2**63 - 4096


@dataclass(frozen=True, slots=True)
class FileName:
    """A share by its mount point, and the name of a file in it if there is one."""

    point: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A wanted file. ``size`` in bytes; ``preallocate`` reserves its space."""

    point: str
    name: str
    size: int
    preallocate: bool = False
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A wanted copy of ``source``. ``replace``: an existing file is replaced."""

    point: str
    name: str
    source: str
    size: int
    preallocate: bool
    mode: int
    replace: bool
    clone: bool


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A foreign file ``reference`` that becomes the volume ``name``."""

    point: str
    name: str
    reference: str
    size: int
    mode: int


def _name(name: str, given: object) -> str:
    text = forms.typed(name, given, str)
    if not nfs_names.is_managed(text):
        raise InvalidValue(name, text, "give volume-UUID or _snapshot-UUID")
    return text


def _reference(name: str, given: object) -> str:
    text = forms.typed(name, given, str)
    if not nfs_names.is_foreign(text):
        raise InvalidValue(name, text, "give a plain name that is not a volume's")
    return text


_SHARE = {"point": forms.text(_POINT, "give a mount point of a share")}
_FILE = {**_SHARE, "name": _name}
_SIZE = forms.integer(0, _MOST)
_MODE = forms.choice(_MODES)

#: The arguments of share.check, share.capacity and share.list.
SHARE = forms.record(FileName, **_SHARE)

#: Of share.find, share.unmanage and share.delete.
NAMED = forms.record(FileName, **_FILE)

#: Of share.create.
CREATE = forms.record(NewFile, **_FILE, size=_SIZE, preallocate=forms.flag, mode=_MODE)

#: Of share.extend.
EXTEND = forms.record(NewFile, **_FILE, size=_SIZE, preallocate=forms.flag)

#: Of share.copy.
COPY = forms.record(
    FileCopy,
    **_FILE,
    source=_name,
    size=_SIZE,
    mode=_MODE,
    preallocate=forms.flag,
    replace=forms.flag,
    clone=forms.flag,
)

#: Of share.manage.
MANAGE = forms.record(
    ForeignFile, **_FILE, reference=_reference, size=_SIZE, mode=_MODE
)
