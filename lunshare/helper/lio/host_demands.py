# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How much each host has asked for with its commands, and how much of it was moved.

The kernel counts what was asked for when a command arrives, for the host's mapped LUN,
in MiB; and the bytes that were moved for the latest of its sessions.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from lunshare.drivers.values import Mode
from lunshare.helper.lio import acls
from lunshare.helper.lio.configfs import ISCSI, names, read
from lunshare.helper.lio.target_reads import TargetReads, is_ours
from lunshare.helper.lio.target_tree import Target

_MIB = 1024**2
# A read takes microseconds. One that waits for a removal is left to its thread.
_HANGING_SECONDS = 0.2

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Demand:
    """One host; bytes, in all, or since its session began.

    ``held`` is what was asked for and not moved. Too much for a host with two sessions,
    and nothing where all was moved and not acknowledged.
    """

    target: Target
    acl: str
    session: int
    read: int
    written: int
    sent: int
    received: int

    @property
    def requested(self) -> int:
        """What its commands were to move."""
        return self.read + self.written

    @property
    def held(self) -> int:
        """What they hold."""
        return max(0, self.read - self.sent) + max(0, self.written - self.received)

    def since(self, base: Demand) -> Demand:
        """Return the difference to an earlier reading."""
        return replace(
            self,
            read=self.read - base.read,
            written=self.written - base.written,
            sent=self.sent - base.sent,
            received=self.received - base.received,
        )


class HostDemands:
    """Reads those of all hosts. A reading is compared with the first of its session.

    The removal of an ACL may wait for ever, and then reading it, or the list of the
    target's ACLs, waits as well (``acls``). Such an ACL is left out; of such a list,
    and of the list of targets, the last one that could be read is used.
    """

    def __init__(self, reads: TargetReads) -> None:
        self._reads = reads
        self._hanging: set[str] = set()
        self._lists: dict[str, list[str]] = {}
        self._last: dict[str, Demand] | None = None
        self._bases: dict[str, Demand] = {}

    def read(self) -> dict[str, Demand]:
        """Return the demand of each host that is logged in, by the path of its ACL."""
        while (demands := self._try()) is None:
            pass
        bases = {acl: self._base(now) for acl, now in demands.items() if now.session}
        self._bases, self._last = bases, demands
        return {acl: demands[acl].since(base) for acl, base in bases.items()}

    def forget(self, demand: Demand) -> None:
        """Count from now on what a host asks for, whose sessions were ended."""
        self._bases.pop(demand.acl, None)
        if self._last is not None:
            self._last[demand.acl] = _demand(demand.target, demand.acl)

    def _base(self, now: Demand) -> Demand:
        """Return what was counted when its session began.

        For the first reading of all that is unknown, so it begins then. An ACL that
        the last reading did not have is new.
        """
        if self._last is None:
            return now
        last = self._last.get(now.acl, _without_traffic(now))
        if now.read < last.read or now.written < last.written:
            return _without_traffic(now)  # another mapped LUN counts anew
        if last.session == now.session:
            return self._bases.get(now.acl, last)
        return replace(last, session=now.session, sent=0, received=0)

    def _try(self) -> dict[str, Demand] | None:
        """Read all in a thread; None if it hangs: then what it reads is left out."""
        work = _Work(self._hanging)
        thread = threading.Thread(target=self._read, args=(work,), daemon=True)
        thread.start()
        before = -1
        while thread.is_alive() and before != work.steps:
            before = work.steps
            thread.join(_HANGING_SECONDS)
        return work.found if work.finished() else None

    def _read(self, work: _Work) -> None:
        with contextlib.suppress(_GivenUp):
            for target in self._targets(work):
                for acl in self._list(work, target.path, partial(_acls, target)):
                    if demand := work.step(acl, partial(_demand, target, acl)):
                        work.found[acl] = demand
            work.ended = True

    def _targets(self, work: _Work) -> Iterator[Target]:
        listed = self._list(work, ISCSI, partial(names, ISCSI))
        for match in filter(None, map(self._reads.ours.fullmatch, listed)):
            yield self._reads.target(match[1])

    def _list(self, work: _Work, path: str, read: Callable[[], list[str]]) -> list[str]:
        listed = work.step(path, read)
        if listed is not None:
            self._lists[path] = listed
        return self._lists.get(path, [])


class _GivenUp(Exception):
    """Another reading has begun meanwhile."""


class _Work:
    """One reading of all, in a thread of its own, which may be given up."""

    def __init__(self, hanging: set[str]) -> None:
        self._hanging, self._mutex = hanging, threading.Lock()
        self._at, self._given_up = "", False
        self.found: dict[str, Demand] = {}
        self.steps, self.ended = 0, False

    def step(self, path: str, read: Callable[[], _Value]) -> _Value | None:
        """Return what is read; None if it is gone, or another reading hangs there."""
        if path in self._hanging:
            return None
        self._at, value = path, None
        with contextlib.suppress(OSError, ValueError):
            value = read()
        with self._mutex:
            if self._given_up:
                self._hanging.discard(path)
                raise _GivenUp
            self.steps += 1
        return value

    def finished(self) -> bool:
        """Whether all was read. Else it is given up, and what it waits for left out."""
        with self._mutex:
            self._given_up = not self.ended
            if self._given_up:
                self._hanging.add(self._at)
        return self.ended


def _acls(target: Target) -> list[str]:
    hosts = map(target.acl, target.acls() if is_ours(target) else ())
    return [acl for acl in hosts if not acls.is_stuck(acl)]


def _demand(target: Target, acl: str) -> Demand:
    """Read one host. A reader's writes are refused before they take memory."""
    moved = acl + "/fabric_statistics/iscsi_sess_stats"
    counters = acl + "/lun_0/statistics/scsi_auth_intr"
    writes = acls.mode(acl) is Mode.RW
    return Demand(
        target,
        acl,
        acls.session(acl),
        read=int(read(counters + "/read_mbytes")) * _MIB,
        written=int(read(counters + "/write_mbytes")) * _MIB if writes else 0,
        sent=int(read(moved + "/txdata_octs") or 0),
        received=int(read(moved + "/rxdata_octs") or 0) if writes else 0,
    )


def _without_traffic(now: Demand) -> Demand:
    return replace(now, read=0, written=0, sent=0, received=0)
