# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One host's access to one volume: an ACL, its credentials, its mapped LUN.

Measured on Debian's 6.1 and 6.12 kernels: write_protect on a mapped LUN acts
on the next command, but a write already inside the target still lands. A real
change of the ACL's cmdsn_depth ends its sessions and returns when their writes
have landed; so does the removal of the ACL. While one waits, no other target
is held up; but a waiting removal locks the directory of this target's ACLs,
even for reading, so the removal comes after the change of depth.

A live session never loses its mapped LUN, not for a moment: the kernel answers READ
of the first 32 KiB of a LUN 0 that is not mapped with GOOD and with whatever is in
its memory (virt_lun0, an rd_mcp with rd_nullio; seen on 6.1). So who goes from one
LUN to the other, or goes for good, loses its session first and cannot log in between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re

from lunshare.drivers.helper.lio.configfs import (
    drop,
    links,
    look,
    make,
    names,
    read,
    settle,
    write,
)
from lunshare.drivers.helper.named_locks import Hold
from lunshare.drivers.values import Auth, Connector, Mode

_LINK = "lun"
_NO_SESSION = "No active iSCSI Session"
_SESSION = re.compile(r"LIO Session ID: (\d+)")
# "Address 192.0.2.1 TCP  StatSN: 0x..." of each connection of the session that the
# kernel shows, which is one of several (lio_target_nacl_info_show, 6.1).
_ADDRESS = re.compile(r"Address (\S+) ")

# Kept as the ACL's tag from before write access is taken until the writes have
# landed, so that a helper that was killed in between waits again.
_FENCING = "(fencing)"

# A mapped LUN without its link has an empty write_protect.
_MODES = {"0": Mode.RW, "1": Mode.RO}

# iscsi_target_nacl_auth: a value that begins with NULL counts as not set, and
# an ACL that asks for CHAP without credentials lets nobody log in.
_NOT_SET = "NULL"


def mode(acl: str) -> Mode | None:
    """What the ACL allows now; None when no LUN is mapped."""
    return _MODES.get(look(acl + "/lun_0/write_protect"))


def tag(acl: str) -> str:
    """The attachment's id, as ``grant`` left it."""
    return read(acl + "/tag")


def in_session(acl: str) -> bool:
    """Whether the host is logged in."""
    return not read(acl + "/info").startswith(_NO_SESSION)


def addresses(acl: str) -> list[str]:
    """Where the host's connections come from, as far as the kernel tells."""
    return sorted(set(_ADDRESS.findall(read(acl + "/info"))))


def close(acl: str, hold: Hold) -> bool:
    """Take the access away but for its empty ACL; return whether there is one.

    The host's writes have landed when this returns, and it cannot log in.

    :raises DeadlineExceeded: its connections are gone or go one after the other, and
        no write is taken, but writes that were under way may still land. Another
        ``close`` waits for them again.
    """
    if not os.access(acl, os.F_OK):
        return False
    shut(acl)
    if in_session(acl):
        write(acl + "/tag", _FENCING)
    _expel(acl, hold)
    return True


def shut(acl: str) -> None:
    """Let no further write through; what is under way is not waited for."""
    for mapping in _mappings(acl):
        if look(mapping + "/write_protect") == "0":
            write(mapping + "/write_protect", "1")


def displace(acl: str, hold: Hold) -> None:
    """Take a host from the LUN that it is given; it cannot log in until ``grant``.

    Its writes under way have landed, as with ``restrict``, and for them alone it is
    not locked out: an initiator may take a refused login for final. When they have
    landed it has logged in again or waits (Linux: 2 s), and the rest takes a moment.

    :raises DeadlineExceeded: it is read-only, on the LUN where it was.
    """
    restrict(acl, hold)
    _expel(acl, hold)


def restrict(acl: str, hold: Hold) -> None:
    """Take write access away and keep reading; see ``close`` for what is promised.

    The session is ended, because only so the kernel waits for the writes. The
    host may log in again at once.
    """
    write(acl + "/tag", _FENCING)
    if mode(acl) is Mode.RW:
        write(acl + "/lun_0/write_protect", "1")
    _end_sessions(acl, hold)


def exceeds(acl: str, wanted: Connector) -> bool:
    """Whether write access is live, or being taken away, where none is wanted."""
    if wanted.mode is Mode.RW:
        return False
    return mode(acl) is Mode.RW or look(acl + "/tag") == _FENCING


def misplaced(acl: str, lun: str) -> bool:
    """Whether the host is given another LUN than this one."""
    if not os.access(acl, os.F_OK):
        return False
    return bool(_leads_to(acl)) and not maps(acl, lun)


def unguarded(acl: str, writers: str) -> bool:
    """Whether a host that is write-protected has the writers' LUN all the same.

    Write protection alone does not keep it from all that writes. While it is being
    moved to the readers' LUN its writes are waited for.
    """
    return mode(acl) is Mode.RO and maps(acl, writers) and tag(acl) != _FENCING


def maps(acl: str, lun: str) -> bool:
    """Whether the host is given this LUN."""
    return _leads_to(acl) == {os.path.basename(lun)}


def strays(acl: str) -> list[str]:
    """Mapped LUNs that we never make: a second way to the same disk."""
    return [path for path in _mappings(acl) if not path.endswith("/lun_0")]


def remove_strays(acl: str) -> None:
    """Remove them; the sessions stay, for they hold the access that is wanted."""
    for path in strays(acl):
        if look(path + "/write_protect") == "0":
            write(path + "/write_protect", "1")
        _unmap(path)


def grant(acl: str, lun: str, wanted: Connector) -> list[str]:
    """Make the access what is wanted, from whatever is there; return the changes.

    Nobody can log in before the LUN is mapped. Born read-only; write access comes
    last and is read back.
    """
    new = make(acl)
    changes = [f"ACL of {wanted.initiator} made"] if new else []
    if wanted.attachment_id != ("" if new else tag(acl)):
        write(acl + "/tag", wanted.attachment_id or _NOT_SET)
        changes.append(f"{wanted.initiator} tagged {wanted.attachment_id}")
    live = None if new else mode(acl)
    if live is None:
        _map(acl, lun)
        changes.append(f"LUN mapped to {wanted.initiator}, {wanted.mode}")
    changes += _authenticate(acl, wanted.auth, new)
    if wanted.mode is Mode.RW and live is not Mode.RW:
        write(acl + "/lun_0/write_protect", "0")
        changes += [f"{wanted.initiator} may write"] if live else []
    if live is not wanted.mode and mode(acl) is not wanted.mode:
        raise OSError(errno.EIO, f"not {wanted.mode}", acl + "/lun_0/write_protect")
    return changes


def remove(acl: str) -> None:
    """Remove an ACL without sessions, whatever there is of it."""
    for mapping in _mappings(acl):
        _unmap(mapping)
    drop(acl)


def _authenticate(acl: str, auth: Auth | None, new: bool) -> list[str]:
    """Set the credentials. The portal group asks for CHAP unless the ACL says no.

    So an ACL is born closed, and one without credentials lets nobody in.
    """
    if auth is None:
        changed = settle(acl + "/attrib/authentication", "0")
    else:
        changed = not new and settle(acl + "/attrib/authentication", "-1")
        for name, value in (("userid", auth.username), ("password", auth.password)):
            path = f"{acl}/auth/{name}"
            if new or read(path) != value:
                write(path, value)
                changed = True
    return [f"credentials of {_host(acl)} set"] if changed and not new else []


def _expel(acl: str, hold: Hold) -> None:
    """End the sessions for good, then take the LUNs away.

    A login that was past its CHAP when the host was locked out ends up in a session
    while the others are ended, so it is looked for again.
    """
    _lock_out(acl)
    _end_sessions(acl, hold)
    while in_session(acl):
        _end_sessions(acl, hold)
    for mapping in _mappings(acl):
        _unmap(mapping)


def _lock_out(acl: str) -> None:
    """Let nobody log in any more. A live session is not disturbed by that.

    The kernel wants both name and password (chap_server_open, 6.1 and 6.12).
    """
    write(acl + "/attrib/authentication", "1")
    write(acl + "/auth/userid", _NOT_SET)


def _end_sessions(acl: str, hold: Hold) -> None:
    """End the ACL's sessions; returns when what they had under way has landed.

    The kernel passes over a session that is logging out by itself
    (lio_tpg_close_session), so the ACL is asked as well: it names a session
    until its commands are done. A later one has a higher number.
    """
    last, what = _session(acl), f"ending the sessions of {_host(acl)}"
    hold.patiently(what, _change_depth, acl)
    hold.until(what, lambda: not 0 < _session(acl) <= last)


def _change_depth(acl: str) -> None:
    """Must be a real change, for only that ends sessions.

    Its store takes the portal group's lock first, so it also waits for an
    earlier one that a killed helper left in the kernel.
    """
    path = acl + "/cmdsn_depth"
    write(path, "63" if read(path) == "64" else "64")


def _session(acl: str) -> int:
    """The number of the ACL's latest session; 0 when it has none."""
    found = _SESSION.search(read(acl + "/info"))
    return int(found[1]) if found else 0


def _leads_to(acl: str) -> set[str]:
    """The names of the LUNs that the host's LUN 0 leads to: one, or none."""
    mapping = acl + "/lun_0"
    with contextlib.suppress(FileNotFoundError):
        return {os.path.basename(os.readlink(f"{mapping}/{_LINK}"))}
    found = (os.readlink(f"{mapping}/{name}") for name in links(mapping))
    return {os.path.basename(each) for each in found}


def _map(acl: str, lun: str) -> None:
    make(acl + "/lun_0")
    os.symlink(lun, f"{acl}/lun_0/{_LINK}")


def _unmap(mapping: str) -> None:
    for link in links(mapping):
        os.unlink(f"{mapping}/{link}")
    drop(mapping)


def _mappings(acl: str) -> list[str]:
    return [f"{acl}/{name}" for name in names(acl) if name.startswith("lun_")]


def _host(acl: str) -> str:
    return os.path.basename(acl)
