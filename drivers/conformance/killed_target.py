# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of a target driver that is killed at each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import TargetDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, Share
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.detach import DetachContract
from lunshare.drivers.conformance.fixtures import TargetFixtures
from lunshare.drivers.conformance.interruption import Kill
from lunshare.drivers.conformance.shared_volume import can_write, login_is_refused

Build = Callable[[], TargetDriver]
Kills = Callable[[], Iterator[Kill[TargetDriver]]]


class KilledTargetContract(DetachContract):
    """Each kill is one step later than the kill before."""

    @pytest.fixture
    def kills(self, build: Build, share: Share) -> Kills:
        """A function that yields kills of a driver that changes access."""
        overridden = type(self).watch_steps is not TargetFixtures.watch_steps
        steps = DriverSteps(build, self.watch_steps, self.counted, overridden)
        shared = share()
        export = shared.export(a=RW)
        steps.probe(lambda target: target.apply(export), lambda: False)
        return steps.kills

    @requires("enforces_read_only")
    def test_a_killed_apply_closes_access_before_it_opens_access(
        self, kills: Kills, share: Share
    ) -> None:
        for kill in kills():
            shared = share()
            shared.apply(a=RW, b=RW, c=RO)
            kill.call("apply", shared.export(b=RO, c=RO, d=RW, e=RO))
            live = shared.live()
            if {"d", "e"} & live.keys():
                assert "a" not in live
                assert live["b"] is live["c"] is RO

    @requires("enforces_read_only")
    def test_a_killed_apply_gives_no_more_access_than_wanted(
        self, kills: Kills, share: Share
    ) -> None:
        share().apply(a=RO)
        for kill in kills():
            shared = share()
            kill.call("apply", shared.export(a=RO, b=RW))
            assert shared.live().get("a") in (None, RO)
            assert login_is_refused(shared, "c")

    @requires("enforces_read_only")
    def test_a_killed_apply_is_finished_by_a_retry(
        self, kills: Kills, share: Share
    ) -> None:
        for kill in kills():
            shared = share()
            shared.apply(a=RW, b=RW, c=RO)
            unchanged = shared.login("c")
            kill.call_and_retry("apply", shared.export(b=RO, c=RO, d=RW))
            assert shared.live() == {"b": RO, "c": RO, "d": RW}
            assert unchanged.alive
            assert can_write(shared.login("d"), "d")

    @enforced_by("fences")
    def test_a_killed_remove_is_finished_by_a_retry(
        self, kills: Kills, share: Share
    ) -> None:
        for kill in kills():
            shared = share()
            shared.apply(a=RW)
            session = shared.login("a")
            kill.call_and_retry("remove", shared.volume.id)
            assert not session.alive
            assert login_is_refused(shared, "a")
            assert shared.live() == {}
