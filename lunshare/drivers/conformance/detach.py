# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests: a write in progress lands before its host loses access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest

from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, AccessContract, CreateShared
from lunshare.drivers.conformance.fixtures import Session
from lunshare.drivers.conformance.shared_volume import (
    PAGE,
    SharedVolume,
    data,
    login_is_refused,
)
from lunshare.drivers.errors import DeadlineExceeded
from lunshare.drivers.fake.fake_storage import Gate

#: Seconds. A driver that does not wait for the write has returned by then.
_AT_ONCE = 0.2


class DetachContract(AccessContract):
    """One test for each behaviour."""

    @contextmanager
    def write_in_progress(
        self, shared_volume: SharedVolume, session: Session
    ) -> Iterator[tuple[Gate, Future[str]] | None]:
        """A context in which the storage holds back a write of this session."""
        assert self.can.fences, "the driver does not wait for writes"
        slow_writes = self.slow_writes(shared_volume.disk)
        if slow_writes is None:
            self.not_tried(
                "a write in progress while access is closed", "override `slow_writes`"
            )
            yield None
            return
        with ThreadPoolExecutor(1) as pool, slow_writes as gate:
            writing = pool.submit(_outcome, session)
            assert gate.reached.wait(30)
            try:
                yield gate, writing
            finally:
                gate.open.set()

    def write_lands_first(
        self, shared_volume: SharedVolume, close: Callable[[], object]
    ) -> None:
        """The write in progress of host a lands before ``close`` returns."""
        a, b = shared_volume.login("a"), shared_volume.login("b")
        a.write(0, data("-"))
        with (
            self.write_in_progress(shared_volume, a) as going,
            ThreadPoolExecutor(1) as pool,
        ):
            if going is None:
                return
            gate, writing = going
            closing = pool.submit(close)
            assert wait([closing], _AT_ONCE).not_done, (
                "it returned while the host's write was in progress"
            )
            gate.open.set()
            closing.result(60)
            found = self.page(shared_volume, b)
            answer = writing.result(60)
        assert found in (data("a"), data("-"))
        assert answer != "landed" or found == data("a")
        assert self.page(shared_volume, b) == found
        assert not a.alive

    def page(self, shared_volume: SharedVolume, other: Session) -> bytes:
        """Read the first page as host b; log it in again if its session ended."""
        if not other.alive:
            shared_volume.apply(b=RW)
            other = shared_volume.login("b")
        return other.read(0, PAGE)

    @enforced_by("fences")
    def test_a_write_in_progress_lands_before_its_host_is_removed(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        self.write_lands_first(shared_volume, lambda: shared_volume.apply(b=RW))

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_a_write_in_progress_lands_before_its_host_is_read_only(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        self.write_lands_first(shared_volume, lambda: shared_volume.apply(a=RO, b=RO))

    @enforced_by("fences")
    def test_a_write_in_progress_lands_before_the_export_is_removed(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        self.write_lands_first(
            shared_volume, lambda: shared_volume.target.remove(shared_volume.volume.id)
        )

    @enforced_by("fences")
    def test_a_close_that_hangs_fails_and_is_finished_by_a_retry(
        self, shared_volume: SharedVolume, create_shared: CreateShared
    ) -> None:
        """The call fails, new logins are refused, and other volumes still work."""
        shared_volume.apply(a=RW, b=RW)
        session, other = shared_volume.login("a"), create_shared()
        with self.write_in_progress(shared_volume, session) as going:
            if going is None:
                return
            gate, writing = going
            for _ in range(2):
                with pytest.raises(DeadlineExceeded):
                    shared_volume.apply(b=RW)
            assert RW is not shared_volume.live().get("a")
            assert (
                login_is_refused(shared_volume, "a")
                or _outcome(shared_volume.login("a")) != "landed"
            )
            other.apply(a=RW)
            assert other.login("a").read(0, PAGE) == bytes(PAGE)
            gate.open.set()
            writing.result(60)
        shared_volume.apply(b=RW)
        assert shared_volume.live() == {"b": RW}
        assert login_is_refused(shared_volume, "a")


def _outcome(session: Session) -> str:
    """Write as host a. Return "landed", or the error that its program gets."""
    try:
        session.write(0, data("a"))
    except OSError as error:
        return str(error)
    return "landed"
