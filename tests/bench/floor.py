# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The floor: one access by plain calls on configfs, in one process, nothing checked.

``full`` does the writes of the helper's apply for a new host with CHAP and write
access. ``bare`` does the fewest writes after which a host can write: an ACL, a
mapped LUN, its link, and the write-protect bit.
"""

from __future__ import annotations

import functools
import os

CONFIGFS = "/sys/kernel/config/target"
PREFIX = "iqn.2026-11.io.lunshare:volume-"
_COMPARED = (
    "tag",
    "auth/userid",
    "auth/password",
    "attrib/authentication",
    "attrib/dataout_timeout",
    "lun_0/write_protect",
)
_FIRST_OWN = 60_000
_INITIATOR = "iqn.1994-05.com.example:floor"


def acl_of(volume_id: str) -> tuple[str, str]:
    """The directory of the floor's ACL of a volume, and the LUN that it maps."""
    group = f"{CONFIGFS}/iscsi/{PREFIX}{volume_id}/tpgt_1"
    return f"{group}/acls/{_INITIATOR}", f"{group}/lun/lun_0"


def full(acl: str, lun: str) -> None:
    """The writes of an apply for a host that writes, with a LUN of its own.

    ``acl`` may end with -- and a number, which is that of its LUN.
    """
    os.mkdir(acl)
    _write(acl + "/auth/userid", "u" * 20)
    _write(acl + "/auth/password", "p" * 16)
    _write(acl + "/tag", "f8d1e2c4-0000-4000-8000-000000000000")
    _write(acl + "/attrib/dataout_timeout", "10")
    own, link = _own(acl), _link(acl)
    os.mkdir(own)
    os.symlink(_backstore(f"{lun}/{link}"), f"{own}/{link}")
    _map(acl, own)


def bare(acl: str, lun: str) -> None:
    """The fewest writes."""
    os.mkdir(acl)
    _map(acl, lun)


def close_safely(acl: str) -> None:
    """Close either as a detach does, with its writes and reads and no more.

    The LUN is protected, logins are refused, and it is read that no session was ended
    by force and none is there, before the LUN is taken away and after it. The empty ACL
    stays, as ``forget`` finds it.
    """
    _write(acl + "/lun_0/write_protect", "1")
    for name, value in (("attrib/authentication", "1"), ("auth/userid", "NULL")):
        _write(f"{acl}/{name}", value)
        _read(f"{acl}/{name}")
    for name in ("/cmdsn_depth", "/info"):
        _read(acl + name)
    _unmap(acl)
    _read(acl + "/info")
    _write(acl + "/tag", "(kept: sessions)")


def read(acl: str) -> None:
    """Read what a comparison reads of a host."""
    for name in _COMPARED:
        _read(f"{acl}/{name}")
    os.readlink(acl + "/lun_0/lun")


def forget(volume_id: str) -> None:
    """Remove the empty ACLs of a volume, as each reconcile does."""
    directory = os.path.dirname(acl_of(volume_id)[0])
    for name in os.listdir(directory):
        if not os.path.isdir(f"{directory}/{name}/lun_0"):
            os.rmdir(f"{directory}/{name}")


def close(acl: str) -> None:
    """Undo either."""
    _unmap(acl)
    os.rmdir(acl)


def exports() -> int:
    """How many iSCSI targets the kernel holds."""
    names = os.listdir(f"{CONFIGFS}/iscsi")
    return sum(name.startswith(("iqn.", "naa.", "eui.")) for name in names)


def _unmap(acl: str) -> None:
    """Remove the mapped LUN, and the host's own around it, if it has one."""
    own = _own(acl)
    try:
        os.unlink(f"{own}/{_link(acl)}")
    except FileNotFoundError:
        own = ""
    os.unlink(acl + "/lun_0/lun")
    os.rmdir(acl + "/lun_0")
    if own:
        os.rmdir(own)


def _own(acl: str) -> str:
    """Return the path of the LUN of one host."""
    group, _, name = acl.partition("/acls/")
    return f"{group}/lun/lun_{_FIRST_OWN + int(name.partition('--')[2] or 0)}"


def _link(acl: str) -> str:
    """Return what a LUN's link to its backstore is called."""
    return "volume-" + acl.partition(PREFIX)[2].partition("/")[0]


@functools.cache
def _backstore(link: str) -> str:
    return os.path.realpath(link)


def _map(acl: str, lun: str) -> None:
    os.mkdir(acl + "/lun_0")
    os.symlink(lun, acl + "/lun_0/lun")
    _write(acl + "/lun_0/write_protect", "0")


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _write(path: str, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, value.encode())
    os.close(descriptor)
