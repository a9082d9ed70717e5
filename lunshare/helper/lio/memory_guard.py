# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Ends the sessions of hosts whose commands take the node's memory (0050).

LIO takes pages for the whole length of a command when it arrives, and keeps them until
the host has acknowledged its status, or its session ends. No attribute bounds either.
The kernel counts such pages nowhere: they are what is left of MemTotal without all that
/proc/meminfo names. In 7.2 that was 7 MiB, and 519 MiB with 512 of a host's commands.

Here nothing waits for a lock of the kernel or of another change: what hangs is left to
its thread. It starts no process and asks nothing of the daemon.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from lunshare.drivers.errors import DriverError
from lunshare.helper.lio import acls, kept_acls, kernel_threads, reservations
from lunshare.helper.lio.configfs import read
from lunshare.helper.lio.host_demands import Demand, HostDemands
from lunshare.helper.lio.target_reads import TargetReads
from lunshare.helper.lio.target_verbs import TargetVerbs

LOG = logging.getLogger(__name__)

MIB = 1024**2
_MEMINFO = "/proc/meminfo"
#: All that has an owner. What is in two of its lines is here once.
_OWNED = (
    *("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "Slab", "Percpu"),
    *("KernelStack", "PageTables", "SecPageTables", "VmallocUsed", "Hugetlb", "Zswap"),
)
# A processor took 26 GiB/s for commands of 64 MiB (7.2). So often is looked.
_BYTES_PER_SECOND = 32 * 1024**3
_LEAST_SECONDS, _MOST_SECONDS = 0.01, 0.25
# So old may be what the hosts' demands are compared with.
_BASE_SECONDS = 60.0
# A session of Linux has 32 commands of 1.25 MiB for a LUN. More than this, and more
# than an eighth of the limit, is no honest host's.
_HONEST = 128 * MIB
# So many are tried at once where nobody stands out. Those from whom nothing came back
# are left alone for a time, unless they take much since.
_TRIED, _MOST_AT_ONCE, _CLEARED_SECONDS = 8, 64, 600.0
_TOGETHER_SECONDS, _CLOSING_SECONDS, _LOGGED_SECONDS = 0.5, 5.0, 60.0
# No cache or balloon takes half of the limit in this time; hosts took 26 GiB/s.
_BURST_SECONDS = 1.0
# So often is looked while sessions end, and just after that.
_WATCH_SECONDS = 0.002

_Is = Callable[[Demand], bool]


class Memory(NamedTuple):
    """Bytes: what commands of hosts hold, and what they may.

    The limit is a quarter of the node's memory, or half of what nobody else uses.
    ``is_urgent``: less than a quarter of it is available, or half of the limit was
    taken within a second, or sessions are being ended.
    """

    held: int
    limit: int
    is_urgent: bool


def memory(lines: Iterable[str]) -> tuple[int, int, int]:
    """Return of /proc/meminfo what has no owner, what is available, and all; bytes."""
    fields = (line.split() for line in lines)
    sizes = Counter({words[0].rstrip(":"): int(words[1]) * 1024 for words in fields})
    owned = sum(sizes[name] for name in _OWNED)
    return sizes["MemTotal"] - owned, sizes["MemAvailable"], sizes["MemTotal"]


class Low:
    """The least value of the last second or two."""

    def __init__(self) -> None:
        self._since, self._values = float("-inf"), [sys.maxsize, sys.maxsize]

    def update(self, value: int) -> int:
        """Take this value into account, and return the least."""
        now = time.monotonic()
        if now > self._since + _BURST_SECONDS:
            self._since, self._values = now, [self._values[1], value]
        self._values[1] = min(self._values[1], value)
        return min(self._values)


class MemoryGuard:
    """A thread that looks at the memory, and ends sessions when hosts hold too much."""

    def __init__(self, verbs: TargetVerbs, reads: TargetReads) -> None:
        self.verbs, self.reads, self._demands = verbs, reads, HostDemands(reads)
        self._based, self._of_drivers = float("-inf"), sys.maxsize
        self._tolerated, self._low, self._relieved = 0, Low(), float("-inf")
        self._logged, self._cleared = dict[str, float](), dict[str, float]()
        self._ending: set[str] = set()
        self._hurrying = threading.Thread()
        self._counts = Counter({"ended": 0, "closed": 0})

    def start(self) -> None:
        """Guard the node until the process ends."""
        threading.Thread(target=self._run, name="memory guard", daemon=True).start()

    def figures(self) -> dict[str, int]:
        """Return held and limit in bytes, and how often a host was ended or closed."""
        now = self._now()
        return {"held": now.held, "limit": now.limit, **self._counts}

    def _run(self) -> None:
        kernel_threads.be_first()
        while True:
            try:
                pause = self._look()
            except Exception:
                LOG.exception("the memory that hosts take is not bounded meanwhile")
                pause = _MOST_SECONDS
            time.sleep(pause)

    def _now(self) -> Memory:
        """Read the memory; the least that was ever seen is of drivers, not of hosts."""
        ownerless, available, total = memory(read(_MEMINFO).splitlines())
        self._of_drivers = min(self._of_drivers, ownerless)
        held = ownerless - self._of_drivers
        limit = min(total // 4, (available + held) // 2)
        is_burst = held - self._low.update(held) > limit // 2 or bool(self._ending)
        return Memory(held, limit, is_burst or available < total // 4)

    def _look(self) -> float:
        """End sessions if need be; return the seconds until the next look."""
        now = self._now()
        if now.held > max(now.limit, _HONEST):
            began, may_wait = time.monotonic(), now.held <= self._tolerated
            if (now.is_urgent or not may_wait) and self._relieve(now):
                self._relieved = time.monotonic()
                return _WATCH_SECONDS
            return max(_LEAST_SECONDS, time.monotonic() - began)
        self._tolerated = 0
        if time.monotonic() > self._based + _BASE_SECONDS:
            self._demands.read()
            self._based = time.monotonic()
        if time.monotonic() < self._relieved + _BURST_SECONDS:
            return _WATCH_SECONDS
        rate = _BYTES_PER_SECOND * (os.cpu_count() or 1)
        return min(max((now.limit - now.held) / rate, _LEAST_SECONDS), _MOST_SECONDS)

    def _blame_others(self, now: Memory) -> None:
        """Count from now on what hosts take: what is held is no host's.

        OpenZFS, buffers of XFS and balloons of hypervisors have such memory too.
        """
        self._of_drivers += now.held
        line = "%d MiB of the node's memory are of no process and no host's commands"
        LOG.warning(line, self._of_drivers // MIB)

    def _relieve(self, now: Memory) -> bool:
        """End all sessions of those who hold most, together; return if anybody does.

        Where nobody does, others are blamed if it is urgent; else more is awaited.
        """
        demands, recent = self._demands.read(), time.monotonic() - _CLEARED_SECONDS
        cleared = {acl for acl, moment in self._cleared.items() if moment > recent}
        others = [host for host in demands.values() if host.acl not in self._ending]
        is_certain = partial(
            _is_certain, Counter(h.target.name for h in demands.values())
        )
        if chosen := suspects(others, now, cleared, is_certain):
            self._end_together(chosen, is_certain, now)
        elif not now.is_urgent:
            self._tolerated = now.held + honest(now.limit)
        elif not self._ending:
            self._blame_others(now)
        return bool(chosen)

    def _end_together(self, chosen: list[Demand], is_certain: _Is, now: Memory) -> None:
        threads = [
            threading.Thread(
                target=self._end, args=(demand, is_certain, now.limit), daemon=True
            )
            for demand in chosen
        ]
        for demand, thread in zip(chosen, threads, strict=True):
            self._ending.add(demand.acl)
            try:
                thread.start()
            except RuntimeError:  # no memory for it; the next look tries again
                self._ending.discard(demand.acl)
        if not self._hurrying.is_alive():
            self._hurrying = threading.Thread(target=self._hurry, daemon=True)
            self._hurrying.start()
        # Meanwhile others may take memory: then there is no time to judge these.
        until, most = time.monotonic() + _TOGETHER_SECONDS, now.held + honest(now.limit)
        while self._ending and time.monotonic() < until and self._now().held < most:
            time.sleep(_WATCH_SECONDS)
        if 0 <= now.held - self._now().held < honest(now.limit) // 4:
            self._cleared |= {demand.acl: time.monotonic() for demand in chosen}

    def _hurry(self) -> None:
        """Let the connections end before others take memory: they free some."""
        threads = kernel_threads.named(kernel_threads.RECEIVES, kernel_threads.SENDS)
        until = time.monotonic() + _TOGETHER_SECONDS
        while self._ending and time.monotonic() < until:
            kernel_threads.hurry_ending(threads)
            time.sleep(_WATCH_SECONDS)

    def _end(self, demand: Demand, is_certain: _Is, limit: int) -> None:
        """End the host's sessions; close it if it is certain what it has held."""
        try:
            certain = demand.held > honest(limit) and is_certain(demand)
            if certain:
                acls.refuse_logins(demand.acl)
            acls.change_depth(demand.acl)
            self._demands.forget(demand)
            self._report(demand, "closed" if certain else "ended")
            if certain:
                self._close(demand)
        except FileNotFoundError:
            pass  # detached meanwhile
        except (OSError, DriverError) as error:
            LOG.error("%s could not be closed: %s", demand.acl, error)
        finally:
            self._ending.discard(demand.acl)

    def _close(self, demand: Demand) -> None:
        """Take its LUN away. Its attachment stays; a detach and an attach open it.

        :raises DeadlineExceeded: a change of the volume goes on; no login is let in.
        """
        target, acl = demand.target, demand.acl
        with self.verbs.locks.hold(target.name, _CLOSING_SECONDS) as lock:
            if acls.close(acl, kept_acls.own_lun(target, acl), lock):
                reservations.void_saved(target, os.path.basename(acl))
                if not acls.is_stuck(acl):
                    acls.keep(acl, acls.DEAD if acls.is_dead(acl) else acls.MEMORY)

    def _report(self, demand: Demand, what: str) -> None:
        self._counts[what] += 1
        now = time.monotonic()
        if now < self._logged.get(demand.acl, float("-inf")) + _LOGGED_SECONDS:
            return
        self._logged[demand.acl] = now
        LOG.error(
            "the memory of the node is short: %s, with %d MiB of commands at volume"
            " %s, is %s",
            os.path.basename(demand.acl),
            demand.held // MIB,
            demand.target.volume_id,
            what,
        )


def suspects(
    demands: Iterable[Demand],
    now: Memory,
    cleared: Collection[str],
    is_certain: _Is,
) -> list[Demand]:
    """Return whose sessions to end: all who hold much, or those who hold or ask most.

    ``cleared`` are ACLs that were tried, and nothing came back. Until it is urgent,
    nobody is ended of whom it is not certain what is held.
    """
    hosts = sorted(demands, key=lambda host: host.held, reverse=True)
    bounds = {True: now.limit, False: honest(now.limit)}
    much = [host for host in hosts if host.held > bounds[host.acl in cleared]]
    if not now.is_urgent:
        much = [host for host in much if is_certain(host)]
    if much or not now.is_urgent:
        return much[:_MOST_AT_ONCE]
    others = [host for host in hosts if host.acl not in cleared and host.requested > 0]
    if sum(host.held for host in others) < now.held // 2:  # moved, not acknowledged
        others.sort(key=lambda host: host.requested, reverse=True)
        return others[:_TRIED]
    sums = accumulate((host.held for host in others), initial=0)
    most = [
        host for host, above in zip(others, sums, strict=False) if above < now.held // 2
    ]
    return most[:_MOST_AT_ONCE]


def honest(limit: int) -> int:
    """Return how many bytes an honest host may hold while memory is short."""
    return max(_HONEST, limit // 8)


def _is_certain(shown: Mapping[str, int], demand: Demand) -> bool:
    """Whether its target has no session that is not shown: its bytes are not known."""
    return demand.target.sessions() <= shown[demand.target.name]
