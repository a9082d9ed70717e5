# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The backends of this node: loaded from the configuration, checked, and bounded.

A driver's error leaves here as an AgentError. A backend that hangs can hold only its
share of the request threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg
from oslo_log import log

from lunshare.agent import request_scope
from lunshare.agent.conf import opts, unknown_options
from lunshare.agent.model.errors import (
    AgentError,
    BackendFailed,
    BackendUnavailable,
    Conflict,
    Exhausted,
    Invalid,
    StartupError,
)
from lunshare.agent.threads.limit import HANGING_SECONDS, Limit, share_of
from lunshare.agent.threads.turn import waiting
from lunshare.drivers import errors as driver_errors
from lunshare.drivers import registry
from lunshare.drivers.backend import Backend
from lunshare.drivers.base import Root
from lunshare.drivers.values import Capacity, Wipe

LOG = log.getLogger(__name__)

#: The first class that matches decides.
_FAMILIES: tuple[tuple[type[driver_errors.DriverError], type[AgentError]], ...] = (
    (driver_errors.InvalidValue, Invalid),
    (driver_errors.Unsupported, Invalid),
    (driver_errors.UnknownReference, Invalid),
    (driver_errors.NoSpace, Exhausted),
    (driver_errors.DiskBusy, Conflict),
    (driver_errors.HelperUnreachable, BackendUnavailable),
    (driver_errors.HelperBusy, BackendUnavailable),
    (driver_errors.DeadlineExceeded, BackendUnavailable),
    (driver_errors.StorageLost, BackendUnavailable),
    (driver_errors.DriverError, BackendFailed),
)


#: Gets "attach" or "detach", its seconds, and whether it failed.
Measured = Callable[[str, float, bool], object]

# A failed operation starts a check of its backend, but no more often than this.
_SUSPECT_SECONDS = 1.0

#: Seconds after which a backend whose check is still running counts as down. An LVM
#: command may wait for a large part of them behind other commands.
LATE = 30.0


class HealthCheck:
    """One check of a backend, in a thread of its own.

    Storage that hangs may block it for as long as its drivers allow. No request
    waits for it, and the next check starts when this one has ended.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """Start."""
        self.done, self.reported = threading.Event(), False
        self._work, self._since = work, time.monotonic()
        self._request_id = request_scope.current()
        threading.Thread(target=self._run, name=f"check-{name}", daemon=True).start()

    def wait(self, timeout: float | None) -> bool:
        """Return whether it was done in so many seconds; None waits for its end."""
        return self.done.wait(timeout)

    def late(self) -> str | None:
        """Return a sentence if it takes so long that the storage must hang."""
        took = time.monotonic() - self._since
        if self.done.is_set() or took < LATE:
            return None
        return f"its check has been running for {took:.0f} s: its storage hangs"

    def _run(self) -> None:
        try:
            with request_scope.scope(self._request_id):
                self._work()
        finally:
            self.done.set()


_UNCHECKED = "its first check is not done yet"


@dataclass
class NodeBackend:
    """One backend, and what its last check found."""

    name: str
    drivers: Backend
    options: Mapping[str, Any]
    operations: Limit
    capacity: Capacity | None = None
    wipes: tuple[Wipe, ...] = ()
    checked_at: float = 0.0
    came_up: Callable[[], None] = lambda: None
    measured: Measured = lambda *_: None
    _last_check: float = -math.inf  # of time.monotonic(); checked_at is for people
    _found: str | None = _UNCHECKED
    _check: HealthCheck | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def problem(self) -> str | None:
        """What is wrong: what the last check found, or that a check hangs."""
        check = self._check
        return (check.late() if check else None) or self._found

    @property
    def up(self) -> bool:
        """Whether the last check found no problem."""
        return self.problem is None

    @property
    def down(self) -> bool:
        """Whether the last check found a problem. False before the first one ends."""
        return self._found not in (None, _UNCHECKED)

    def require_reach(self, volume_id: str) -> None:
        """Check that no part of it is lost that may have the volume's disk.

        :raises BackendUnavailable: one is; it says why.
        """
        if lost := self.drivers.volumes.lost(volume_id):
            raise BackendUnavailable(lost)

    @contextmanager
    def for_request(self) -> Iterator[Backend]:
        """Use the driver in a request thread; its errors become AgentErrors.

        :raises BackendUnavailable: too many requests work on it already.
        """
        with self.operations.place(HANGING_SECONDS) as operation:
            if operation is None:
                raise BackendUnavailable(
                    f"backend {self.name} has too many operations in progress: try"
                    " again later, and check whether its storage hangs"
                )
            with self._watched():
                yield self.drivers

    @contextmanager
    def for_access(
        self, only: str | None, wanted: Collection[object]
    ) -> Iterator[Backend]:
        """Use the driver to change accesses, in a request thread; measure it.

        With ``only``, one initiator, it is an attach if an access is ``wanted``, and a
        detach otherwise. Without it, all of a volume's accesses are applied.

        :raises BackendUnavailable: too many requests work on it already.
        """
        began, failed = time.monotonic(), True
        try:
            with self.for_request() as drivers:
                yield drivers
            failed = False
        finally:
            if only is not None:
                what = "attach" if wanted else "detach"
                self.measured(what, time.monotonic() - began, failed)

    @contextmanager
    def for_job(self) -> Iterator[Backend]:
        """Use the driver where its own limit is none: in a job, or for a look."""
        with self._watched():
            yield self.drivers

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Translate errors; check storage that failed at once.

        So the next request and /readyz do not wait for the next check on the timer
        to report that a volume group is missing.
        """
        try:
            with waiting(), translated():
                yield
        except BackendFailed:
            if time.monotonic() - self._last_check > _SUSPECT_SECONDS:
                # "can't start new thread": the timer tries again.
                with suppress(RuntimeError):
                    self.start_check()
            raise

    def start_check(self) -> HealthCheck:
        """Start a check in a thread of its own, unless one is running."""
        with self._mutex:
            if self._check is None or self._check.done.is_set():
                self._check = HealthCheck(self.name, self.refresh)
            elif (problem := self._check.late()) and not self._check.reported:
                self._check.reported = True
                LOG.error("[%s] backend state: up=False problem=%s", self.name, problem)
            return self._check

    def follow_storage(self) -> None:
        """From now on check it whenever its driver notices that storage changed."""
        self.drivers.volumes.follow_storage(self._check_again)

    def _check_again(self) -> None:
        """Check it as it is now: a check that is running may have looked before."""
        with self._mutex:  # else it may have begun, and not be known yet
            running = self._check
        if running is not None:
            running.wait(None)
        with suppress(RuntimeError):  # "can't start new thread": the timer tries again
            self.start_check()

    def refresh(self) -> None:
        """Check it and read its capacity; remember what is wrong."""
        try:
            self.drivers.volumes.check()
            self.drivers.target.check()
            opened = self._note_capacity(self.drivers.volumes.capacity())
            self.wipes = self.drivers.volumes.wipes()
            self._note_state(None, opened)
        except driver_errors.DriverError as error:
            self._note_state(str(error))
        except Exception:
            LOG.exception("[%s] check failed unexpectedly", self.name)
            self._note_state("its driver failed unexpectedly; see the journal")

    def _note_capacity(self, found: Capacity) -> bool:
        """Remember it; log when the pool closes. Return whether it opens again."""
        before = self.capacity.closed if self.capacity else ""
        if found.closed and found.closed != before:
            LOG.warning("[%s] pool closed: %s", self.name, found.closed)
        opened = bool(before and not found.closed)
        if opened:
            LOG.info("[%s] pool open again", self.name)
        self.capacity = found
        return opened

    def _note_state(self, problem: str | None, opened: bool = False) -> None:
        """Remember it; report a backend that comes up, or all of it that is back."""
        if problem != self._found:
            LOG.log(
                log.INFO if problem is None else log.ERROR,
                "[%s] backend state: up=%s problem=%s",
                self.name,
                problem is None,
                problem,
            )
        came_up = problem is None and self._found is not None
        self._found, self.checked_at = problem, time.time()
        self._last_check = time.monotonic()
        if came_up or opened:
            self.came_up()


@contextmanager
def translated() -> Iterator[None]:
    """Turn a driver's error into the AgentError that shows what to do next."""
    try:
        yield
    except driver_errors.DriverError as error:
        family = next(new for old, new in _FAMILIES if isinstance(error, old))
        raise family(str(error), code=error.code) from error


def is_part_lost(error: AgentError) -> bool:
    """Whether the storage cannot tell, because a part of it is lost."""
    return error.fields.get("code") == driver_errors.StorageLost.code


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

    def is_up(self, name: str) -> bool:
        """Whether there is such a backend, and its last check found no problem."""
        backend = self.find(name)
        return backend is not None and backend.up

    def reaches(self, name: str, volume_id: str) -> bool:
        """Whether it is up, and no part of it is lost that may have this disk."""
        backend = self.find(name)
        return (
            backend is not None
            and backend.up
            and not backend.drivers.volumes.lost(volume_id)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)


def load(conf: cfg.ConfigOpts, root: Root) -> Backends:
    """Load the enabled backends. Does no I/O.

    :raises StartupError: the configuration is wrong; the message names the place.
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


def _check_options(conf: cfg.ConfigOpts, name: str) -> None:
    if unknown := unknown_options.unknown(conf, name):
        raise ValueError(
            f"{', '.join(unknown)}: no such option; its drivers know"
            f" {', '.join(sorted(conf[name]))}"
        )


def _load_one(conf: cfg.ConfigOpts, name: str, root: Root, share: int) -> NodeBackend:
    opts.register_backend(conf, name)
    chosen = conf[name].volume_driver
    if not chosen:
        choice = ", ".join(registry.driver_names(registry.VOLUMES))
        raise StartupError(
            f"backend section [{name}] is missing or has no volume_driver: add"
            f" volume_driver, one of {choice}"
        )
    try:
        volumes = registry.volume_driver(chosen)
        target = registry.target_driver(conf[name].target_driver)
        opts.register_backend(conf, name, [*volumes.OPTIONS, *target.OPTIONS])
        options = dict(conf[name])
        _check_options(conf, name)
        drivers = Backend(volumes(name, options, root), target(name, options, root))
    except (driver_errors.DriverError, cfg.Error, ValueError) as error:
        raise StartupError(f"backend section [{name}]: {error}") from error
    return NodeBackend(name, drivers, options, Limit(share))
