# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read helper.conf, and check that only root could have written it."""

from __future__ import annotations

import configparser
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable

from lunshare.drivers.errors import InvalidValue, Misconfigured
from lunshare.drivers.values import iscsi_name
from lunshare.helper.served import BASE, Served

_SECTION = "helper"
_MOST_BYTES = 64 * 1024
_NO_VOLUME = f"volume-{uuid.UUID(int=0)}"
_PREFIX = "iqn.2026-11.io.lunshare:"

# "shm" and "mqueue" are directories of /dev in which anyone may write.
_GROUP = re.compile(r"(?!(?:shm|mqueue|mapper)$)[A-Za-z0-9_+][A-Za-z0-9_+.-]*\*?")
_SHARE = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:.]+\]):/[!-~]*")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_SWITCH = {"yes": True, "no": False}

_KEYS = (
    "volume_groups",
    "target_prefix",
    "nfs_mount_point_base",
    "nfs_shares",
    "directories",
    "manage_foreign_disks",
    "take_over_cinder_targets",
)


def read(path: str) -> Served:
    """Return what the file at ``path`` allows.

    :raises Misconfigured: it is missing, has a mistake, or others can write it.
    """
    need_only_root_writes(path)
    options = _given(path)
    for key in options:
        if key not in _KEYS:
            raise _wrong(path, key, f"unknown option; known are {', '.join(_KEYS)}")

    def each(key: str, separators: str, form: Callable[[str], str]) -> tuple[str, ...]:
        return tuple(_formed(path, key, _split(options.get(key, ""), separators), form))

    return Served(
        prefix=_one(
            path, "target_prefix", options.get("target_prefix", _PREFIX), target_prefix
        ),
        groups=each("volume_groups", r"[\s,]+", _group),
        base=_one(
            path, _KEYS[2], options.get("nfs_mount_point_base", BASE), _directory
        ),
        shares=each("nfs_shares", r"\s+", _share),
        directories=each("directories", r"[\s,]+", _directory),
        manage=_switch(path, options, "manage_foreign_disks"),
        takeover=_switch(path, options, "take_over_cinder_targets"),
    )


def need_only_root_writes(path: str) -> None:
    """:raises Misconfigured: users other than root could change it."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise Misconfigured(
            f"{path}: {error.strerror}", "run systemd/install, which creates it"
        ) from None
    writable = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if writable or status.st_uid not in (0, os.geteuid()):
        raise Misconfigured(
            f"{path} can be changed by users other than root",
            "chown root and chmod go-w, because it decides what runs as root",
        )


def target_prefix(text: str) -> str:
    """Return the prefix of the names of lunshare's targets, if it is valid."""
    name = iscsi_name(text + _NO_VOLUME, "target_prefix")
    return name[: -len(_NO_VOLUME)]


def _given(path: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(default_section="")
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_string(file.read(_MOST_BYTES), path)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: {error}", "correct that line") from None
    for section in parser.sections():
        if section != _SECTION:
            raise _wrong(path, f"[{section}]", f"the only section is [{_SECTION}]")
    return dict(parser[_SECTION]) if parser.has_section(_SECTION) else {}


def _split(text: str, separators: str) -> list[str]:
    return [word for word in re.split(separators, text.strip()) if word]


def _formed(
    path: str, key: str, values: Iterable[str], form: Callable[[str], str]
) -> Iterable[str]:
    return (_one(path, key, value, form) for value in values)


def _one(path: str, key: str, value: str, form: Callable[[str], str]) -> str:
    try:
        return form(value)
    except InvalidValue as error:
        raise _wrong(path, f"{key} {value!r}", error.remedy) from None


def _group(text: str) -> str:
    if _GROUP.fullmatch(text):
        return text
    raise InvalidValue("", text, "give names of volume groups; a name may end in *")


def _directory(text: str) -> str:
    plain = text.isascii() and text.isprintable() and os.path.normpath(text) == text
    if plain and text.startswith("/") and text != "/":
        return text
    raise InvalidValue("", text, "give an absolute path without . or .. or // in it")


def _share(text: str) -> str:
    if _SHARE.fullmatch(text) and not {".", ".."} & set(text.split("/")):
        return _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), text)
    raise InvalidValue("", text, "give HOST:/PATH; a blank in a path is \\040")


def _switch(path: str, given: dict[str, str], key: str) -> bool:
    text = given.get(key, "no")
    if text not in _SWITCH:
        raise _wrong(path, f"{key} {text!r}", "give yes or no")
    return _SWITCH[text]


def _wrong(path: str, what: str, remedy: str) -> Misconfigured:
    return Misconfigured(f"{path}: {what}", remedy)
