# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The backends of this node: made from the configuration, watched, and guarded.

A driver's error leaves here as one of ours, and a backend that hangs can hold
only its share of the threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg
from oslo_log import log

from lunshare.agent.conf import opts, unknown_options
from lunshare.agent.errors import (
    AgentError,
    BackendFailed,
    BackendUnavailable,
    Conflict,
    Exhausted,
    Invalid,
    StartupError,
)
from lunshare.agent.worker_turns import waiting
from lunshare.drivers import errors as driver_errors
from lunshare.drivers import registry
from lunshare.drivers.backend import Backend
from lunshare.drivers.base import Root
from lunshare.drivers.values import Capacity, Wipe

LOG = log.getLogger(__name__)

#: The first family that fits wins.
_FAMILIES: tuple[tuple[type[driver_errors.DriverError], type[AgentError]], ...] = (
    (driver_errors.InvalidValue, Invalid),
    (driver_errors.Unsupported, Invalid),
    (driver_errors.UnknownReference, Invalid),
    (driver_errors.NoSpace, Exhausted),
    (driver_errors.DiskBusy, Conflict),
    (driver_errors.HelperUnreachable, BackendUnavailable),
    (driver_errors.HelperBusy, BackendUnavailable),
    (driver_errors.DeadlineExceeded, BackendUnavailable),
    (driver_errors.DriverError, BackendFailed),
)


#: Seconds after which what is under way is taken for something that hangs.
MOMENT = 3.0

# An operation's failure starts a check of its backend, but no more often than this.
_SUSPECT_SECONDS = 1.0

#: Seconds after which a backend whose check is under way counts as down. An LVM
#: command may wait for a good part of it behind others.
LATE = 30.0


class OperationLimit:
    """How many requests may work on a backend at once.

    One more waits for a moment, unless what is under way has taken longer than
    that: then storage hangs, and waiting would take the threads of others.
    """

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._since: dict[int, float] = {}

    def acquire(self) -> bool:
        """Whether the calling thread has one."""
        now = time.monotonic()
        oldest = min(list(self._since.values()), default=now)
        if not self._acquired(max(0.0, oldest + MOMENT - now)):
            return False
        self._since[threading.get_ident()] = time.monotonic()
        return True

    def _acquired(self, wait: float) -> bool:
        if self._free.acquire(blocking=False):
            return True
        with waiting():
            return self._free.acquire(timeout=wait)

    def release(self) -> None:
        """Give the calling thread's back."""
        del self._since[threading.get_ident()]
        self._free.release()


class HealthCheck:
    """One look at a backend, under way or done.

    Storage that hangs may keep it for as long as its drivers let it; nobody
    else waits for it, and the next look begins when this one has ended.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """Begin."""
        self.done, self.reported = threading.Event(), False
        self._work, self._since = work, time.monotonic()
        threading.Thread(target=self._run, name=f"look-{name}", daemon=True).start()

    def wait(self, timeout: float | None) -> bool:
        """Whether it was done within so many seconds; None waits for its end."""
        return self.done.wait(timeout)

    def late(self) -> str | None:
        """A sentence about a look that takes so long that storage must hang."""
        took = time.monotonic() - self._since
        if self.done.is_set() or took < LATE:
            return None
        return f"a check of it has been under way for {took:.0f} s: its storage hangs"

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self.done.set()


_UNSEEN = "its first check is not done yet"


@dataclass
class NodeBackend:
    """One backend with what is known of it."""

    name: str
    driver: Backend
    options: Mapping[str, Any]
    slots: OperationLimit
    capacity: Capacity | None = None
    wipes: tuple[Wipe, ...] = ()
    checked_at: float = 0.0
    came_up: Callable[[], None] = lambda: None
    _found: str | None = _UNSEEN
    _check: HealthCheck | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def problem(self) -> str | None:
        """What is wrong with it: as the last look found, or that one hangs."""
        look = self._check
        return (look.late() if look else None) or self._found

    @property
    def up(self) -> bool:
        """Whether the last check found it working."""
        return self.problem is None

    @property
    def down(self) -> bool:
        """Whether it is known not to work; before its first check ends it is not."""
        return self._found not in (None, _UNSEEN)

    @contextmanager
    def for_request(self) -> Iterator[Backend]:
        """The driver, for one operation; its errors become ours.

        :raises BackendUnavailable: too many operations wait for it already.
        """
        if not self.slots.acquire():
            raise BackendUnavailable(
                f"backend {self.name} has too many operations under way: try again"
                " later, and see whether its storage hangs"
            )
        try:
            with self._watched():
                yield self.driver
        finally:
            self.slots.release()

    @contextmanager
    def for_job(self) -> Iterator[Backend]:
        """As ``for_request``, for a worker that holds no request's thread."""
        with self._watched():
            yield self.driver

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Errors become ours; storage that failed is checked at once.

        So the next request and /readyz need not wait for the next check on the
        timer to learn that a volume group is gone.
        """
        try:
            with waiting(), translated():
                yield
        except BackendFailed:
            if time.time() - self.checked_at > _SUSPECT_SECONDS:
                self.start_check()
            raise

    def start_check(self) -> HealthCheck:
        """Begin to refresh it, in a thread of its own, unless that is under way."""
        with self._mutex:
            if self._check is None or self._check.done.is_set():
                self._check = HealthCheck(self.name, self.refresh)
            elif (late := self._check.late()) and not self._check.reported:
                self._check.reported = True
                LOG.error("[%s] STATE up=False problem=%s", self.name, late)
            return self._check

    def refresh(self) -> None:
        """Check it and read its capacity; remember what is wrong, if anything."""
        try:
            self.driver.volumes.check()
            self.driver.target.check()
            self._note_capacity(self.driver.volumes.capacity())
            self.wipes = self.driver.volumes.wipes()
            self._settle(None)
        except driver_errors.DriverError as error:
            self._settle(str(error))
        except Exception:
            LOG.exception("[%s] CHECK failed unexpectedly", self.name)
            self._settle("its driver failed unexpectedly; see the journal")

    def _note_capacity(self, found: Capacity) -> None:
        """Remember it; the log says when the pool closes, and when it opens again."""
        before = self.capacity.closed if self.capacity else ""
        if found.closed and found.closed != before:
            LOG.warning("[%s] POOL closed: %s", self.name, found.closed)
        elif before and not found.closed:
            LOG.info("[%s] POOL open again", self.name)
        self.capacity = found

    def _settle(self, problem: str | None) -> None:
        if problem != self._found:
            LOG.log(
                log.INFO if problem is None else log.ERROR,
                "[%s] STATE up=%s problem=%s",
                self.name,
                problem is None,
                problem,
            )
        came_up = problem is None and self._found is not None
        self._found, self.checked_at = problem, time.time()
        if came_up:
            self.came_up()


@contextmanager
def translated() -> Iterator[None]:
    """Turn a driver's error into the family that tells the caller what to do."""
    try:
        yield
    except driver_errors.DriverError as error:
        family = next(ours for theirs, ours in _FAMILIES if isinstance(error, theirs))
        raise family(str(error), code=error.code) from error


class Backends(Mapping[str, NodeBackend]):
    """The backends by name."""

    def __init__(self, backends: Mapping[str, NodeBackend]) -> None:
        self._backends = dict(backends)

    def __getitem__(self, name: str) -> NodeBackend:
        try:
            return self._backends[name]
        except KeyError:
            raise BackendUnavailable(
                f"backend {name} is not among enabled_backends: name it there again,"
                " or its volumes cannot be reached"
            ) from None

    def find(self, name: str) -> NodeBackend | None:
        """The backend of that name, or None."""
        return self._backends.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)


def load(conf: cfg.ConfigOpts, root: Root) -> Backends:
    """Make the enabled backends; do no I/O.

    :raises StartupError: the configuration is wrong; says where and how.
    """
    names = conf.enabled_backends
    if not names:
        raise StartupError(
            "enabled_backends is empty: name at least one backend section there"
        )
    if len(set(names)) != len(names):
        raise StartupError(f"enabled_backends names a backend twice: {names}")
    share = share_of(conf.osapi_threads)
    return Backends({name: _load_one(conf, name, root, share) for name in names})


def _check_written(conf: cfg.ConfigOpts, name: str) -> None:
    if strange := unknown_options.unknown(conf, name):
        raise ValueError(
            f"{', '.join(strange)}: no such option; its drivers know"
            f" {', '.join(sorted(conf[name]))}"
        )


def share_of(threads: int) -> int:
    """How many of the threads one thing that hangs may hold."""
    return int(max(2, threads // 3))


def _load_one(conf: cfg.ConfigOpts, name: str, root: Root, share: int) -> NodeBackend:
    opts.register_backend(conf, name)
    chosen = conf[name].volume_driver
    if not chosen:
        raise StartupError(
            f"backend section [{name}] is missing or has no volume_driver: add"
            f" volume_driver, one of {', '.join(registry.known(registry.VOLUMES))}"
        )
    try:
        volumes = registry.volume_driver(chosen)
        target = registry.target_driver(conf[name].target_driver)
        opts.register_backend(conf, name, [*volumes.OPTIONS, *target.OPTIONS])
        options = dict(conf[name])
        _check_written(conf, name)
        driver = Backend(volumes(name, options, root), target(name, options, root))
    except (driver_errors.DriverError, cfg.Error, ValueError) as error:
        raise StartupError(f"backend section [{name}]: {error}") from error
    return NodeBackend(name, driver, options, OperationLimit(share))
