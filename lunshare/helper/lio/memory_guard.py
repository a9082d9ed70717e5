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

import contextlib
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from lunshare.drivers.errors import DriverError
from lunshare.helper.lio import acls, kept_acls, reservations
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
# A processor took 12 GiB/s for commands of 64 MiB (7.2). So often is looked.
_BYTES_PER_SECOND = 16 * 1024**3
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


class Memory(NamedTuple):
    """Bytes: what commands of hosts hold, and what they may.

    The limit is a quarter of the node's memory, or half of what nobody else uses.
    ``is_short``: less than a quarter of it is available.
    """

    held: int
    limit: int
    is_short: bool


def memory(lines: Iterable[str]) -> tuple[int, int, int]:
    """Return of /proc/meminfo what has no owner, what is available, and all; bytes."""
    fields = (line.split() for line in lines)
    sizes = Counter({words[0].rstrip(":"): int(words[1]) * 1024 for words in fields})
    owned = sum(sizes[name] for name in _OWNED)
    return sizes["MemTotal"] - owned, sizes["MemAvailable"], sizes["MemTotal"]


class MemoryGuard:
    """A thread that looks at the memory, and ends sessions when hosts hold too much."""

    def __init__(self, verbs: TargetVerbs, reads: TargetReads) -> None:
        self.verbs, self.reads, self._demands = verbs, reads, HostDemands(reads)
        self._based, self._of_drivers = float("-inf"), sys.maxsize
        self._logged, self._cleared = dict[str, float](), dict[str, float]()
        self._ending: set[str] = set()
        self._counts = Counter({"ended": 0, "closed": 0})

    def start(self) -> None:
        """Guard the node until the process ends."""
        threading.Thread(target=self._run, name="memory guard", daemon=True).start()

    def figures(self) -> dict[str, int]:
        """Return held and limit in bytes, and how often a host was ended or closed."""
        now = self._now()
        return {"held": now.held, "limit": now.limit, **self._counts}

    def _run(self) -> None:
        # The kernel's threads that take memory want the processor as well.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        while True:
            try:
                pause = self._look()
            except Exception:
                LOG.exception("the memory that hosts take is not bounded meanwhile")
                pause = 1.0
            time.sleep(pause)

    def _now(self) -> Memory:
        """Read the memory; the least that was ever seen is of drivers, not of hosts."""
        ownerless, available, total = memory(read(_MEMINFO).splitlines())
        self._of_drivers = min(self._of_drivers, ownerless)
        held = ownerless - self._of_drivers
        limit = min(total // 4, (available + held) // 2)
        return Memory(held, limit, available < total // 4)

    def _look(self) -> float:
        """End sessions if need be; return the seconds until the next look."""
        now = self._now()
        if now.held > max(now.limit, _HONEST):
            if not self._relieve(now):
                self._blame_others(now)
            return _LEAST_SECONDS
        if time.monotonic() > self._based + _BASE_SECONDS:
            self._demands.read()
            self._based = time.monotonic()
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
        """End all sessions of those who hold most, together; return if anybody does."""
        demands, recent = self._demands.read(), time.monotonic() - _CLEARED_SECONDS
        cleared = {acl for acl, moment in self._cleared.items() if moment > recent}
        others = [host for host in demands.values() if host.acl not in self._ending]
        chosen = suspects(others, now, cleared, partial(_is_certain, demands))
        threads = [
            threading.Thread(
                target=self._end, args=(demand, demands, now.limit), daemon=True
            )
            for demand in chosen
        ]
        self._ending.update(demand.acl for demand in chosen)
        for thread in threads:
            thread.start()
        until = time.monotonic() + _TOGETHER_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if 0 <= now.held - self._now().held < honest(now.limit) // 4:
            self._cleared |= {demand.acl: time.monotonic() for demand in chosen}
        return bool(chosen)

    def _end(self, demand: Demand, demands: Mapping[str, Demand], limit: int) -> None:
        """End the host's sessions; close it if it is certain what it has held."""
        try:
            certain = demand.held > honest(limit) and _is_certain(demands, demand)
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
    is_certain: Callable[[Demand], bool],
) -> list[Demand]:
    """Return whose sessions to end: all who hold much, or those who hold or ask most.

    ``cleared`` are ACLs that were tried, and nothing came back. Until memory is short,
    nobody is ended of whom it is not certain what is held.
    """
    hosts = sorted(demands, key=lambda host: host.held, reverse=True)
    bounds = {True: now.limit, False: honest(now.limit)}
    much = [host for host in hosts if host.held > bounds[host.acl in cleared]]
    if not now.is_short:
        much = [host for host in much if is_certain(host)]
    if much or not now.is_short:
        return much[:_MOST_AT_ONCE]
    others = [host for host in hosts if host.acl not in cleared]
    if sum(host.held for host in others) < now.held // 2:  # moved, not acknowledged
        others.sort(key=lambda host: host.requested, reverse=True)
    return [host for host in others if host.requested > 0][:_TRIED]


def honest(limit: int) -> int:
    """Return how many bytes an honest host may hold while memory is short."""
    return max(_HONEST, limit // 8)


def _is_certain(demands: Mapping[str, Demand], demand: Demand) -> bool:
    """Whether the target has no session that is not shown: its bytes are not known."""
    shown = sum(other.target.name == demand.target.name for other in demands.values())
    return demand.target.sessions() <= shown
