# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a person can change by hand in the configfs of a live target.

The target has the hosts ``writer``, which may write, and ``reader``; ``intruder`` has
no attachment. Each change has the kind of drift that it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lunshare.drivers.drifts import DriftKind

_PORT = 3299


@dataclass(frozen=True)
class Hosts:
    """A portal group in configfs, and the initiators of its hosts."""

    group: Path
    writer: str
    reader: str
    intruder: str

    def acl(self, host: str) -> Path:
        """The directory of a host's ACL."""
        return self.group / "acls" / host

    def backstore(self, lun: str) -> Path:
        """The backstore that a LUN is linked to."""
        return next(p for p in (self.group / "lun" / lun).iterdir() if p.is_symlink())

    def portals(self) -> list[str]:
        """Where it listens."""
        return sorted(p.name for p in (self.group / "np").iterdir())


def _add_acl(hosts: Hosts) -> None:
    acl = hosts.acl(hosts.intruder)
    acl.mkdir()
    (acl / "lun_0").mkdir()
    os.symlink(hosts.group / "lun/lun_0", acl / "lun_0/mine")
    (acl / "lun_0/write_protect").write_text("0")
    (acl / "attrib/authentication").write_text("0")


def _let_reader_write(hosts: Hosts) -> None:
    (hosts.acl(hosts.reader) / "lun_0/write_protect").write_text("0")


def _give_reader_the_writers_lun(hosts: Hosts) -> None:
    mapped = hosts.acl(hosts.reader) / "lun_0"
    os.unlink(mapped / "lun")
    os.symlink(hosts.group / "lun/lun_0", mapped / "lun")
    (mapped / "write_protect").write_text("1")


def _map_another_lun(hosts: Hosts) -> None:
    mapped = hosts.acl(hosts.reader) / "lun_7"
    mapped.mkdir()
    os.symlink(hosts.group / "lun/lun_0", mapped / "more")
    (mapped / "write_protect").write_text("0")


def _protect_writer(hosts: Hosts) -> None:
    (hosts.acl(hosts.writer) / "lun_0/write_protect").write_text("1")


def _stop_writer(hosts: Hosts) -> None:
    lun = (hosts.acl(hosts.writer) / "lun_0/lun").resolve()
    (lun / "alua_tg_pt_offline").write_text("1")


def _unmap_writer(hosts: Hosts) -> None:
    os.unlink(hosts.acl(hosts.writer) / "lun_0/lun")


def _remove_writer(hosts: Hosts) -> None:
    _unmap_writer(hosts)
    (hosts.acl(hosts.writer) / "lun_0").rmdir()
    hosts.acl(hosts.writer).rmdir()


def _add_portal(hosts: Hosts) -> None:
    (hosts.group / f"np/127.0.0.1:{_PORT}").mkdir()


def _remove_portal(hosts: Hosts) -> None:
    (hosts.group / "np" / hosts.portals()[0]).rmdir()


def _writes(place: str, value: str) -> Callable[[Hosts], None]:
    """Write to a file below the portal group."""

    def change(hosts: Hosts) -> None:
        names = {"writer": hosts.writer, "reader": hosts.reader}
        (hosts.group / place.format(**names)).write_text(value)

    return change


def _of_backstore(lun: str, name: str, value: str) -> Callable[[Hosts], None]:
    def change(hosts: Hosts) -> None:
        (hosts.backstore(lun) / name).write_text(value)

    return change


_K = DriftKind
_ALUA = "alua/default_tg_pt_gp/alua_access_type"
#: By what is done: how, and what it is found to be.
CHANGES: dict[str, tuple[Callable[[Hosts], None], DriftKind]] = {
    "an ACL added": (_add_acl, _K.WIDER),
    "a reader may write": (_let_reader_write, _K.WIDER),
    "a reader on the writers' LUN": (_give_reader_the_writers_lun, _K.WIDER),
    "a second LUN mapped": (_map_another_lun, _K.WIDER),
    "a writer protected": (_protect_writer, _K.NARROWER),
    "a LUN unmapped": (_unmap_writer, _K.NARROWER),
    "an ACL removed": (_remove_writer, _K.NARROWER),
    "a secret changed": (
        _writes("acls/{reader}/auth/password", "guessed"),
        _K.CREDENTIAL,
    ),
    "a user changed": (_writes("acls/{writer}/auth/userid", "guest"), _K.CREDENTIAL),
    "an ACL without CHAP": (
        _writes("acls/{reader}/attrib/authentication", "0"),
        _K.CREDENTIAL,
    ),
    "a host awaited less": (
        _writes("acls/{writer}/attrib/dataout_timeout", "3"),
        _K.ATTRIBUTE,
    ),
    "a tag changed": (_writes("acls/{writer}/tag", "somebody"), _K.ATTRIBUTE),
    "a target without CHAP": (_writes("attrib/authentication", "0"), _K.ATTRIBUTE),
    "any host let in": (_writes("attrib/generate_node_acls", "1"), _K.ATTRIBUTE),
    "any host may write": (
        _writes("attrib/demo_mode_write_protect", "0"),
        _K.ATTRIBUTE,
    ),
    "new LUNs writable": (_writes("attrib/prod_mode_write_protect", "0"), _K.ATTRIBUTE),
    "data with commands": (_writes("param/ImmediateData", "Yes"), _K.ATTRIBUTE),
    "writers' port states": (_of_backstore("lun_0", _ALUA, "3"), _K.ATTRIBUTE),
    "writers' reservations": (
        _of_backstore("lun_0", "attrib/emulate_pr", "1"),
        _K.ATTRIBUTE,
    ),
    "readers' third-party copy": (
        _of_backstore("lun_1", "attrib/emulate_3pc", "1"),
        _K.ATTRIBUTE,
    ),
    "readers' reservations": (
        _of_backstore("lun_1", "attrib/emulate_pr", "1"),
        _K.ATTRIBUTE,
    ),
    "readers' write same": (
        _of_backstore("lun_1", "attrib/max_write_same_len", "4096"),
        _K.ATTRIBUTE,
    ),
    "the writer's LUN offline": (_stop_writer, _K.ATTRIBUTE),
    "a LUN offline": (_writes("lun/lun_0/alua_tg_pt_offline", "1"), _K.ATTRIBUTE),
    "a portal added": (_add_portal, _K.PORTAL),
    "a portal removed": (_remove_portal, _K.PORTAL),
    "a target disabled": (_writes("enable", "0"), _K.TARGET),
}


def add_foreign_target(hosts: Hosts, iqn: str) -> Path:
    """Export the writers' disk as another target; return it."""
    target = hosts.group.parents[1] / iqn
    group = target / "tpgt_1"
    target.mkdir()
    group.mkdir()
    (group / "lun/lun_0").mkdir()
    backstore = hosts.backstore("lun_0").resolve()
    os.symlink(backstore, group / "lun/lun_0/theirs")
    return target


def remove_foreign_target(target: Path) -> None:
    """Remove it."""
    os.unlink(target / "tpgt_1/lun/lun_0/theirs")
    for path in ("tpgt_1/lun/lun_0", "tpgt_1", ""):
        (target / path).rmdir()
