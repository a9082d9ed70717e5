# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every target driver does when it is killed at any of its steps, as tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import TargetDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, Share
from lunshare.drivers.conformance.coverage import Stepping
from lunshare.drivers.conformance.detach import DetachContract
from lunshare.drivers.conformance.fixtures import TargetFixtures
from lunshare.drivers.conformance.interruption import Life
from lunshare.drivers.conformance.shared_volume import can_write, refuses

Build = Callable[[], TargetDriver]
Lives = Callable[[], Iterator[Life[TargetDriver]]]


class KilledTargetContract(DetachContract):
    """Each life is killed one step later than the one before it."""

    @pytest.fixture
    def each(self, build: Build, share: Share) -> Lives:
        """Lives to change an access in."""
        hooked = type(self).watched is not TargetFixtures.watched
        stepping = Stepping(build, self.watched, self.counted, hooked)
        shared = share()
        export = shared.export(a=RW)
        stepping.probe(lambda target: target.apply(export), lambda: False)
        return stepping.lives

    @requires("enforces_read_only")
    def test_a_killed_apply_closes_access_before_it_opens_access(
        self, each: Lives, share: Share
    ) -> None:
        for life in each():
            shared = share()
            shared.apply(a=RW, b=RW, c=RO)
            life.ends("apply", shared.export(b=RO, c=RO, d=RW, e=RO))
            live = shared.live()
            if {"d", "e"} & live.keys():
                assert "a" not in live
                assert live["b"] is live["c"] is RO

    @requires("enforces_read_only")
    def test_a_killed_apply_gives_no_more_access_than_wanted(
        self, each: Lives, share: Share
    ) -> None:
        share().apply(a=RO)
        for life in each():
            shared = share()
            life.ends("apply", shared.export(a=RO, b=RW))
            assert shared.live().get("a") in (None, RO)
            assert refuses(shared, "c")

    @requires("enforces_read_only")
    def test_a_killed_apply_is_finished_by_a_retry(
        self, each: Lives, share: Share
    ) -> None:
        for life in each():
            shared = share()
            shared.apply(a=RW, b=RW, c=RO)
            unchanged = shared.login("c")
            life.repeats("apply", shared.export(b=RO, c=RO, d=RW))
            assert shared.live() == {"b": RO, "c": RO, "d": RW}
            assert unchanged.alive
            assert can_write(shared.login("d"), "d")

    @enforced_by("fences")
    def test_a_killed_remove_is_finished_by_a_retry(
        self, each: Lives, share: Share
    ) -> None:
        for life in each():
            shared = share()
            shared.apply(a=RW)
            session = shared.login("a")
            life.repeats("remove", shared.volume.id)
            assert not session.alive
            assert refuses(shared, "a")
            assert shared.live() == {}
