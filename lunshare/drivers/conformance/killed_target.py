# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of a target driver that is killed at each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import TargetDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, CreateShared
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
    def kills(self, build: Build, create_shared: CreateShared) -> Kills:
        """A function that yields kills of a driver that changes access."""
        overridden = type(self).watch_steps is not TargetFixtures.watch_steps
        steps = DriverSteps(build, self.watch_steps, self.counted, overridden)
        shared_volume = create_shared()
        export = shared_volume.export(a=RW)
        steps.probe(lambda target: target.apply(export), lambda: False)
        return steps.kills

    @requires("enforces_read_only")
    def test_a_killed_apply_closes_access_before_it_opens_access(
        self, kills: Kills, create_shared: CreateShared
    ) -> None:
        for kill in kills():
            shared_volume = create_shared()
            shared_volume.apply(a=RW, b=RW, c=RO)
            kill.call("apply", shared_volume.export(b=RO, c=RO, d=RW, e=RO))
            live = shared_volume.live()
            if {"d", "e"} & live.keys():
                assert "a" not in live
                assert live["b"] is live["c"] is RO

    @requires("enforces_read_only")
    def test_a_killed_apply_gives_no_more_access_than_wanted(
        self, kills: Kills, create_shared: CreateShared
    ) -> None:
        create_shared().apply(a=RO)
        for kill in kills():
            shared_volume = create_shared()
            kill.call("apply", shared_volume.export(a=RO, b=RW))
            assert shared_volume.live().get("a") in (None, RO)
            assert login_is_refused(shared_volume, "c")

    @requires("enforces_read_only")
    def test_a_killed_apply_is_finished_by_a_retry(
        self, kills: Kills, create_shared: CreateShared
    ) -> None:
        for kill in kills():
            shared_volume = create_shared()
            shared_volume.apply(a=RW, b=RW, c=RO)
            unchanged = shared_volume.login("c")
            kill.call_and_retry("apply", shared_volume.export(b=RO, c=RO, d=RW))
            assert shared_volume.live() == {"b": RO, "c": RO, "d": RW}
            assert unchanged.alive
            assert can_write(shared_volume.login("d"), "d")

    @enforced_by("fences")
    def test_a_killed_remove_is_finished_by_a_retry(
        self, kills: Kills, create_shared: CreateShared
    ) -> None:
        for kill in kills():
            shared_volume = create_shared()
            shared_volume.apply(a=RW)
            session = shared_volume.login("a")
            kill.call_and_retry("remove", shared_volume.volume.id)
            assert not session.alive
            assert login_is_refused(shared_volume, "a")
            assert shared_volume.live() == {}
