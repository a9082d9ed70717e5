# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One host's access to one volume: an ACL, its credentials, its mapped LUN.

Measured on Debian's 6.1 and 6.12 kernels: write_protect on a mapped LUN acts
on the next command, but a write already inside the target still lands. A real
change of the ACL's cmdsn_depth ends its sessions and returns when their writes
have landed; so do the removal of its LUN and that of the ACL, which wait also for a
session that the kernel does not show. While one waits, no other target is held up.
But a waiting removal of an ACL locks the directory of this target's ACLs, even for
reading; one of a LUN locks that LUN. So the ACL goes where it is the only proof
(``kept_acls``).

A live session never loses its mapped LUN, not for a moment: the kernel answers READ
of the first 32 KiB of a LUN 0 that is not mapped with GOOD and with arbitrary bytes
of its memory (virt_lun0, an rd_mcp with rd_nullio; seen on 6.1). So before a host is
moved to the other LUN, or removed, its session is ended and it cannot log in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable

from lunshare.drivers.values import Auth, Connector, Mode
from lunshare.helper.lio.configfs import (
    create_object,
    links,
    names,
    read,
    read_or_empty,
    remove_link,
    remove_links,
    remove_object,
    write,
    write_and_read,
    write_if_different,
)
from lunshare.helper.named_locks import TimedLock

_LINK = "lun"
_NO_SESSION = "No active iSCSI Session"
# Before this there is InitiatorAlias, any text that the host gives, also of this form.
_ID = "LIO Session ID: "
_FAILED = "TARG_SESS_STATE_FAILED"
_TIMER_SECONDS, _PAUSE_SECONDS = 1.0, 0.01
_SESSION = re.compile(_ID + r"(\d+)")
# "Address 192.0.2.1 TCP  StatSN: 0x..." for each connection of the one session that
# the kernel shows, even if there are several (lio_target_nacl_info_show, 6.1).
_ADDRESS = re.compile(r"Address (\S+) ")

# A new ACL has it. It is never written again: it says that no session was ended.
_FIRST_DEPTH = "64"

# The ACL has this tag from before write access is removed until the writes have
# landed. So when the helper is killed in between, the next helper waits again.
FENCING = "(fencing)"
# How the tag of an ACL starts that is closed and stays: see kept_acls.
_KEPT = "(kept: "
EMPTY, DEAD, HELD = "sessions", "dead session", "dependency"
#: The removal of its LUN never ends, and below it nothing can be read.
STUCK = "mapped LUN"
STUCK_TAG = f"{_KEPT}{STUCK})"
_UNMAP_SECONDS = 2.0
#: It has taken the node's memory: see memory_guard.
MEMORY = "memory"
#: Why a host is not let in again: a dead session would be hidden, a LUN not mapped.
REFUSED = (DEAD, STUCK, MEMORY)
_CONNECTION = "CID: "

# A mapped LUN without its link has an empty write_protect.
_MODES = {"0": Mode.RW, "1": Mode.RO}

# iscsi_target_nacl_auth: a value that starts with NULL counts as not set, and an ACL
# that requires CHAP without credentials refuses every login.
_NOT_SET = "NULL"
# Seconds for which a host may pause in the data of a write. The kernel's 3 end the
# session of a host or network that is slow for so long, since each write waits for its
# data (0037). But for so long it delays a LUN RESET of another host, which Linux gives
# up after 30 s (lu_reset_timeout).
PATIENCE = ("attrib/dataout_timeout", "10")
# What refuses every login, read back.
_CLOSED = (("attrib/authentication", "1"), ("auth/userid", _NOT_SET))
# It follows its portal group. A new ACL does.
_OF_GROUP = ("attrib/authentication", "-1")


def mode(acl: str) -> Mode | None:
    """Return what the ACL allows now; None when no LUN is mapped."""
    return _MODES.get(read_or_empty(acl + "/lun_0/write_protect"))


def tag(acl: str) -> str:
    """Return the attachment's id, as ``grant`` wrote it."""
    return read(acl + "/tag")


def in_session(acl: str) -> bool:
    """Whether the host is logged in, or has no ACL."""
    return not read_or_empty(acl + "/info").startswith(_NO_SESSION)


def session(acl: str) -> int:
    """Return the number of the ACL's latest session; 0 when it has none."""
    match = _SESSION.match(_of_kernel(acl))
    return int(match[1]) if match else 0


def is_idle(acl: str) -> bool:
    """Whether it is certain that the host has no session with a command in progress.

    The kernel shows the latest of the ACL's list (nacl_sess). A session leaves the list
    after its commands (iscsit_close_session), or when the depth is changed, finished or
    not. So until the first change, an ACL that shows none has none.
    """
    return read(acl + "/cmdsn_depth") == _FIRST_DEPTH and not in_session(acl)


def is_dead(acl: str) -> bool:
    """Whether the host's latest session has failed and has no connection.

    The kernel has released the commands of a connection before it says so. Unless a
    timer ends such a session, it stays until the node starts again.
    """
    shown = _of_kernel(acl)
    return _FAILED in shown and _CONNECTION not in shown


def why_kept(acl: str) -> str:
    """Return why the ACL stays, as ``keep`` wrote it; "" when it is another one."""
    _, mark, why = read_or_empty(acl + "/tag").partition(_KEPT)
    return why.rstrip(")") if mark and not mapped_luns(acl) else ""


def has_live_session(acl: str) -> bool:
    """Whether the host is logged in with a session that ends if it is asked to."""
    return in_session(acl) and not is_dead(acl)


def is_stuck(acl: str) -> bool:
    """Whether the kernel is removing its LUN, for ever."""
    return read_or_empty(acl + "/tag") == STUCK_TAG


def keep(acl: str, why: str) -> None:
    """Refuse every login of an ACL without a LUN. ``grant`` can use it again."""
    refuse_logins(acl)
    note_kept(acl, why)


def note_kept(acl: str, why: str) -> None:
    """Note that an ACL without a LUN, whose logins are refused, stays."""
    write(acl + "/tag", f"{_KEPT}{why})")


def addresses(acl: str) -> list[str]:
    """Return the addresses of the host's connections that the kernel shows."""
    return sorted(set(_ADDRESS.findall(_of_kernel(acl))))


def close(acl: str, own: str, lock: TimedLock) -> bool:
    """Remove the access except for its empty ACL; return whether there is an ACL.

    When this returns, the host cannot log in. Its writes have landed if it had a LUN of
    its ``own``, else when its ACL is removed or kept (``kept_acls``).

    :raises DeadlineExceeded: its connections are closed or being closed, and new
        writes are refused, but writes in progress may still land. Another ``close``
        waits for them again.
    """
    if not os.access(acl, os.F_OK):
        return False
    write_protect(acl)
    if own or in_session(acl):
        write(acl + "/tag", FENCING)
    _end_and_unmap(acl, own, lock)
    return True


def close_idle(acl: str, own: str, link: str) -> bool:
    """Refuse logins, and unmap a host without a session; False if it has one after all.

    No command of such a host is in progress, and none can come. It is not ``is_stuck``.
    ``link`` is that of its ``own`` LUN, which goes.
    """
    refuse_logins(acl)
    if not is_idle(acl):
        return False
    if own:
        remove_link(own, link)
    for mapping in _listed_mappings(acl):
        _unmap(mapping)
    remove_object(own)
    return not in_session(acl)


def write_protect(acl: str) -> None:
    """Refuse further writes. Writes in progress may still land."""
    for mapping in _writable(acl):
        write(mapping + "/write_protect", "1")


def close_to_move(acl: str, own: str, lock: TimedLock) -> None:
    """Remove the host's LUN, as ``close``, of a host that will get another one.

    First its writes in progress land, as with ``set_read_only``. Logins are not refused
    during that wait, because an initiator may give up after a refused login. Then the
    host has logged in again or waits (Linux: 2 s), and the rest is quick.

    :raises DeadlineExceeded: the host is read-only, on the LUN that it had.
    """
    if not is_idle(acl):
        set_read_only(acl, lock)
    _end_and_unmap(acl, own, lock)


def start_read_only(acl: str) -> None:
    """Refuse further writes of a host that may still read; ``set_read_only`` waits."""
    write(acl + "/tag", FENCING)
    write_protect(acl)


def set_read_only(acl: str, lock: TimedLock) -> None:
    """Remove write access; the host may still read. It promises the same as ``close``.

    The session is ended, because only then the kernel waits for the writes. The
    host may log in again immediately.
    """
    start_read_only(acl)
    _end_sessions(acl, lock)


def allows_too_much(acl: str, wanted: Connector) -> bool:
    """Whether write access is live, or being removed, although it is not wanted."""
    if wanted.mode is Mode.RW:
        return False
    return bool(_writable(acl)) or is_fencing(acl)


def is_fencing(acl: str) -> bool:
    """Whether write access is being removed, or a helper was killed while it was."""
    return read_or_empty(acl + "/tag") == FENCING


def maps(acl: str, lun: str) -> bool:
    """Whether the ACL maps this LUN."""
    return mapped_luns(acl) == {os.path.basename(lun)}


def extra_mapped_luns(acl: str) -> list[str]:
    """Return mapped LUNs that lunshare never creates: a second path to the disk."""
    return [path for path in _mappings(acl) if not path.endswith("/lun_0")]


def remove_extra_mapped_luns(acl: str) -> None:
    """Remove them. The sessions stay: they have the wanted access."""
    for path in extra_mapped_luns(acl):
        if read_or_empty(path + "/write_protect") == "0":
            write(path + "/write_protect", "1")
        _unmap(path)


def grant(acl: str, lun: Callable[[], str], wanted: Connector) -> list[str]:
    """Apply the wanted access, from any live state; return the changes.

    ``lun`` returns the LUN for a host that has none mapped.

    The host cannot log in before the LUN is mapped. A mapped LUN starts read-only, and
    that is read back before a host that may only read can log in. Write access is set
    last and is read back.
    """
    new = create_object(acl)
    changes = [f"ACL of {wanted.initiator} created"] if new else []
    if wanted.attachment_id != ("" if new else tag(acl)):
        write(acl + "/tag", wanted.attachment_id or _NOT_SET)
        changes.append(f"{wanted.initiator} tagged {wanted.attachment_id}")
    if new:
        write(acl + "/" + PATIENCE[0], PATIENCE[1])
    elif write_if_different(acl + "/" + PATIENCE[0], PATIENCE[1]):
        changes.append(f"data of {wanted.initiator} awaited for {PATIENCE[1]} s")
    live = None if new else mode(acl)
    if live is None:
        map_lun(acl, lun())
        changes.append(f"LUN mapped to {wanted.initiator}, {wanted.mode}")
    protect = acl + "/lun_0/write_protect"
    if wanted.mode is Mode.RO and live is not Mode.RO:
        _need_mode(protect, read(protect), Mode.RO)
    changes += _authenticate(acl, wanted.auth, new)
    if wanted.mode is Mode.RW and live is not Mode.RW:
        _need_mode(protect, write_and_read(protect, "0"), Mode.RW)
        changes += [f"{wanted.initiator} may write"] if live else []
    return changes


def _need_mode(path: str, found: str, wanted: Mode) -> None:
    if _MODES.get(found) is not wanted:
        raise OSError(errno.EIO, f"not {wanted}", path)


def unmap(acl: str, lock: TimedLock) -> None:
    """Remove the mapped LUNs of a host without a live session, or note ``STUCK``.

    In 7.2 a registration with SPEC_I_PT that fails makes this wait for ever
    (docs/kernel-reports/pr-spec-i-pt.md).
    """
    what = f"unmapping {_host(acl)}"
    if not lock.try_step(what, _UNMAP_SECONDS, unmap_at_once, acl):
        write(acl + "/tag", STUCK_TAG)


def unmap_at_once(acl: str) -> None:
    """Do the same for a host that has sent nothing since its LUN was mapped."""
    for mapping in _mappings(acl):
        _unmap(mapping)


def credentials(auth: Auth | None) -> dict[str, str]:
    """Return the attributes of an ACL that decide who can log in as its host.

    The portal group requires CHAP unless the ACL disables it. So a new ACL, which has
    no credentials, refuses every login. The user is set last: a closed ACL that is used
    again has none, and still the password of the attachment before.
    """
    if auth is None:
        return {"attrib/authentication": "0"}
    named = {"auth/password": auth.password, "auth/userid": auth.username}
    return dict([_OF_GROUP]) | named


def _authenticate(acl: str, auth: Auth | None, new: bool) -> list[str]:
    """Set the credentials."""
    changed = False
    for name, value in credentials(auth).items():
        path = f"{acl}/{name}"
        if (name, value) != _OF_GROUP if new else read(path) != value:
            write(path, value)
            changed = True
    return [f"credentials of {_host(acl)} set"] if changed and not new else []


def _end_and_unmap(acl: str, own: str, lock: TimedLock) -> None:
    """Refuse logins, end the sessions, then remove the mapped LUNs.

    A login that had passed CHAP before logins were refused may become a session
    meanwhile, so the sessions are checked again, and once more without the LUN.
    The removal of the link of the host's ``own`` LUN waits for each command, also of
    sessions that the kernel does not show. The ACL maps that LUN until then, so the
    next helper finds it again.
    """
    refuse_logins(acl)
    if not is_idle(acl):
        _end_sessions(acl, lock)
    while has_live_session(acl):
        _end_sessions(acl, lock)
    if own:
        lock.run_step(f"closing the LUN of {_host(acl)}", remove_links, own)
    unmap(acl, lock)
    remove_object(own)
    while has_live_session(acl):  # it reads the kernel's bytes (0013)
        _end_sessions(acl, lock)


def refuse_logins(acl: str) -> None:
    """Refuse every login. Live sessions continue.

    The kernel requires both name and password (chap_server_open, 6.1 and 6.12).
    """
    for name, value in _CLOSED:
        if write_and_read(f"{acl}/{name}", value) != value:
            raise OSError(errno.EIO, f"not {value}", f"{acl}/{name}")


def _end_sessions(acl: str, lock: TimedLock) -> None:
    """End the ACL's sessions; return when their commands in progress have landed.

    The kernel skips a session that is already logging out (lio_tpg_close_session).
    So the ACL is read as well: it shows a session until its commands are done. A
    later session has a higher number.
    """
    last, what = session(acl), f"ending the sessions of {_host(acl)}"
    _wait_for_timer(acl)
    lock.run_step(what, change_depth, acl)
    lock.wait_until(what, lambda: not 0 < session(acl) <= last or is_dead(acl))
    _wait_for_timer(acl)


def _wait_for_timer(acl: str) -> None:
    """Wait at most a second for the end of a session without a connection.

    Its host has logged out the connection only. A timer ends the session after
    DefaultTime2Retain, 0 here. A change of the depth would stop that timer, and nothing
    would end the session (6.12, docs/kernel-reports/logout-of-a-connection.md). A host
    can still hit the moment between this wait and the change: see ``is_dead``.
    """
    until = time.monotonic() + _TIMER_SECONDS
    while _FAILED in _of_kernel(acl) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)


def change_depth(acl: str) -> None:
    """Write another value, because only a real change ends sessions.

    The write takes the portal group's lock first. So it also waits for an earlier
    one that a killed helper left in the kernel.
    """
    path = acl + "/cmdsn_depth"
    write(path, "62" if read(path) == "63" else "63")


def _of_kernel(acl: str) -> str:
    """Return what the kernel shows of the session, without what the host has given."""
    _, mark, text = read(acl + "/info").rpartition(_ID)
    return mark + text


def mapped_luns(acl: str) -> set[str]:
    """Return the names of the LUNs that the host's LUN 0 maps: one, or none."""
    return tag_and_luns(acl)[1]


def tag_and_luns(acl: str) -> tuple[str, set[str]]:
    """Return the ACL's tag as well, "" when there is no ACL."""
    text = read_or_empty(acl + "/tag")
    return text, set() if text == STUCK_TAG else linked_luns(acl)


def linked_luns(acl: str) -> set[str]:
    """Return the same of a host that is not ``is_stuck``."""
    mapping = acl + "/lun_0"
    with contextlib.suppress(FileNotFoundError):
        return {os.path.basename(os.readlink(f"{mapping}/{_LINK}"))}
    luns = (os.readlink(f"{mapping}/{name}") for name in links(mapping))
    return {os.path.basename(lun) for lun in luns}


def map_lun(acl: str, lun: str) -> None:
    """Map a LUN as the host's LUN 0, read-only."""
    create_object(acl + "/lun_0")
    os.symlink(lun, f"{acl}/lun_0/{_LINK}")


def _unmap(mapping: str) -> None:
    """Remove the link, which is the access, and the object, unless it is depended on.

    A registration with SPEC_I_PT leaves such a dependency of the kernel (EBUSY).
    """
    remove_link(mapping, _LINK)
    try:
        remove_object(mapping)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


def _mappings(acl: str) -> list[str]:
    return [] if is_stuck(acl) else _listed_mappings(acl)


def _listed_mappings(acl: str) -> list[str]:
    return [f"{acl}/{name}" for name in names(acl) if name.startswith("lun_")]


def _writable(acl: str) -> list[str]:
    """Return the mapped LUNs that allow writes: LUN 0, or one that a person added."""
    mappings = _mappings(acl)
    return [
        mapping
        for mapping in mappings
        if read_or_empty(mapping + "/write_protect") == "0"
    ]


def _host(acl: str) -> str:
    return os.path.basename(acl)
