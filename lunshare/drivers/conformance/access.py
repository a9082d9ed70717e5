# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests: each host has exactly its own access to an exported volume."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.fixtures import MIB, TargetFixtures, new_volume
from lunshare.drivers.conformance.shared_volume import (
    PAGE,
    HostFactory,
    SharedVolume,
    can_write,
    data,
    login_is_refused,
    name,
    write_until,
)
from lunshare.drivers.values import Export, Mode

CreateShared = Callable[[], SharedVolume]

RO, RW = Mode.RO, Mode.RW
#: More than a table of 16, whose places would be used twice.
_HOSTS = "abcdefghijklmnopqrst"


class AccessContract(TargetFixtures):
    """One test for each behaviour; part of ``TargetContract``."""

    @pytest.fixture
    def create_shared(
        self, volumes: VolumeDriver, target: TargetDriver, host: HostFactory
    ) -> Iterator[CreateShared]:
        """A function that creates a volume to share; it is deleted after the test."""
        made: list[SharedVolume] = []

        def create() -> SharedVolume:
            volume = new_volume(self.size)
            made.append(SharedVolume(volume, volumes.create(volume), target, host))
            return made[-1]

        yield create
        for shared_volume in made:
            shared_volume.close()
            volumes.delete(shared_volume.volume.id)

    @pytest.fixture
    def shared_volume(self, create_shared: CreateShared) -> SharedVolume:
        """A volume to share."""
        return create_shared()

    # login

    @enforced_by("restricts_access")
    def test_a_host_without_an_attachment_cannot_log_in(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        assert login_is_refused(shared_volume, "b")
        assert shared_volume.login("a").alive

    @enforced_by("restricts_access")
    def test_access_to_one_volume_gives_no_access_to_another(
        self, create_shared: CreateShared
    ) -> None:
        first, second = create_shared(), create_shared()
        first.apply(a=RW)
        second.apply(b=RW)
        assert login_is_refused(second, "a")
        assert login_is_refused(first, "b")

    def test_volumes_do_not_share_bytes(self, create_shared: CreateShared) -> None:
        first, second = create_shared(), create_shared()
        for shared_volume, letter in ((first, "a"), (second, "b")):
            shared_volume.apply(a=RW)
            shared_volume.login("a").write(0, data(letter))
        assert first.login("a").read(0, PAGE) == data("a")
        assert second.login("a").read(0, PAGE) == data("b")

    # modes

    @requires("enforces_read_only")
    def test_a_read_only_host_can_read_and_cannot_write(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RO)
        sessions = [shared_volume.login("a"), shared_volume.login("a")]
        end = shared_volume.disk.size - PAGE
        for session in sessions:
            assert session.read(0, PAGE) == bytes(PAGE)
            for at, pages in ((0, 1), (MIB, MIB // PAGE), (end, 1)):
                assert not can_write(session, "a", at, pages)
            assert session.alive

    def test_a_read_write_host_can_write(self, shared_volume: SharedVolume) -> None:
        shared_volume.apply(a=RW)
        assert can_write(shared_volume.login("a"), "a")

    @requires("enforces_read_only")
    def test_hosts_read_what_other_hosts_wrote(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO, c=RW)
        a, b, c = (shared_volume.login(letter) for letter in "abc")
        a.write(0, data("a"))
        assert b.read(0, PAGE) == c.read(0, PAGE) == data("a")
        c.write(PAGE, data("c"))
        assert a.read(0, 2 * PAGE) == b.read(0, 2 * PAGE) == data("a") + data("c")

    @requires("enforces_read_only")
    def test_many_hosts_have_their_own_modes(self, shared_volume: SharedVolume) -> None:
        modes = {letter: RW if n % 3 else RO for n, letter in enumerate(_HOSTS)}
        shared_volume.apply(**modes)
        sessions = {letter: shared_volume.login(letter) for letter in modes}
        writers = {k for k, session in sessions.items() if can_write(session, k)}
        assert writers == {letter for letter, mode in modes.items() if mode is RW}

    @requires("enforces_read_only")
    def test_a_host_has_a_separate_mode_for_each_volume(
        self, create_shared: CreateShared
    ) -> None:
        first, second = create_shared(), create_shared()
        first.apply(a=RW, b=RO)
        second.apply(a=RO, b=RW)
        a, b = second.login("a"), second.login("b")
        assert can_write(first.login("a"), "a")
        assert not can_write(first.login("b"), "b")
        assert not can_write(a, "a")
        assert can_write(b, "b")
        first.apply(b=RO)
        assert a.alive
        assert b.alive

    @requires("enforces_read_only")
    def test_a_host_that_is_attached_again_has_its_new_mode(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        shared_volume.login("a")
        shared_volume.apply(b=RW)
        shared_volume.apply(a=RO, b=RW)
        assert not can_write(shared_volume.login("a"), "a")

    @requires("enforces_read_only")
    def test_a_host_can_end_one_of_two_sessions(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        first, second, other = (
            shared_volume.login("a"),
            shared_volume.login("a"),
            shared_volume.login("b"),
        )
        first.close()
        assert second.alive
        assert other.alive
        assert can_write(second, "a")

    def test_writers_read_what_other_writers_wrote(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        a.write(0, data("a"))
        b.write(PAGE, data("b"))
        assert a.read(0, 2 * PAGE) == b.read(0, 2 * PAGE) == data("a") + data("b")

    # changes of access

    @requires("enforces_read_only")
    def test_a_retried_apply_changes_nothing(self, shared_volume: SharedVolume) -> None:
        assert shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        assert shared_volume.apply(a=RW, b=RO) == ()
        assert shared_volume.apply("a", a=RW, b=RO) == ()
        assert a.alive
        assert b.alive

    @requires("enforces_read_only")
    def test_adding_a_host_leaves_other_sessions_alive(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        shared_volume.apply(a=RW, b=RO, c=RW)
        assert a.alive
        assert b.alive
        assert can_write(shared_volume.login("c"), "c")

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_a_removed_host_loses_access_at_once(
        self, shared_volume: SharedVolume
    ) -> None:
        """A host whose name begins with the name of the removed one does not."""
        shared_volume.apply(a=RW, b=RW, bc=RO)
        a, b, c = (shared_volume.login(letters) for letters in ("a", "b", "bc"))
        shared_volume.apply(a=RW, bc=RO)
        assert not b.alive
        assert login_is_refused(shared_volume, "b")
        assert a.alive
        assert c.alive
        assert can_write(a, "a")

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_a_removed_host_cannot_write(self, shared_volume: SharedVolume) -> None:
        shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        a.write(0, data("a"))
        shared_volume.apply(b=RO)
        with pytest.raises(ConnectionError):
            a.write(0, data("x"))
        assert b.read(0, PAGE) == data("a")

    @enforced_by("fences")
    def test_other_hosts_can_write_while_a_host_is_removed(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        a, b, removed = (
            shared_volume.login("a"),
            shared_volume.login("b"),
            threading.Event(),
        )
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write_until, removed, b)
            shared_volume.apply(b=RW)
            removed.set()
            assert writing.result() > 0
        assert not a.alive
        assert b.read(PAGE, PAGE) == data("b")

    @enforced_by("fences")
    def test_all_sessions_of_a_removed_host_end(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        first, second, other = (
            shared_volume.login("a"),
            shared_volume.login("a"),
            shared_volume.login("b"),
        )
        shared_volume.apply(b=RW)
        assert not first.alive
        assert not second.alive
        assert other.alive

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_a_host_changed_to_read_only_loses_write_and_session(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW, c=RO)
        a, b, c = (shared_volume.login(letter) for letter in "abc")
        shared_volume.apply(a=RO, b=RW, c=RO)
        assert not a.alive
        assert not can_write(shared_volume.login("a"), "a")
        assert b.alive
        assert c.alive
        assert can_write(b, "b")

    @requires("enforces_read_only")
    def test_changing_a_host_to_read_write_leaves_other_sessions_alive(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RO, b=RO)
        b = shared_volume.login("b")
        shared_volume.apply(a=RW, b=RO)
        assert can_write(shared_volume.login("a"), "a")
        assert b.alive
        assert not can_write(b, "b")

    @requires("enforces_read_only")
    def test_two_hosts_can_swap_their_modes(self, shared_volume: SharedVolume) -> None:
        shared_volume.apply(a=RW, b=RO)
        shared_volume.login("a").write(0, data("a"))
        shared_volume.apply(a=RO, b=RW)
        assert not can_write(shared_volume.login("a"), "a")
        assert can_write(shared_volume.login("b"), "b")

    # apply with only

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_apply_with_only_opens_one_host_and_leaves_the_others(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        a = shared_volume.login("a")
        shared_volume.apply("b", b=RO)
        assert shared_volume.live() == {"a": RW, "b": RO}
        assert a.alive

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_apply_with_only_closes_one_host_and_leaves_the_others(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO, bc=RW)
        a, b, c = (shared_volume.login(letters) for letters in ("a", "b", "bc"))
        shared_volume.target.apply(Export(shared_volume.volume.id), only={name("b")})
        assert shared_volume.live() == {"a": RW, "c": RW}
        assert not b.alive
        assert a.alive
        assert c.alive

    @enforced_by("fences")
    def test_apply_with_only_opens_and_closes_several_hosts(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        shared_volume.apply("bc", a=RW, b=RW, c=RW)
        sessions = [shared_volume.login(letter) for letter in "abc"]
        assert all(map(can_write, sessions, "abc"))
        shared_volume.apply("bc", a=RW)
        assert shared_volume.live() == {"a": RW}
        assert [session.alive for session in sessions] == [True, False, False]

    @requires("enforces_read_only")
    def test_apply_with_only_does_not_open_other_hosts(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply("a", a=RO, b=RW)
        assert shared_volume.live() == {"a": RO}
        assert login_is_refused(shared_volume, "b")

    def test_apply_with_only_ignores_upper_case(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        shared_volume.target.apply(
            Export(shared_volume.volume.id), only={name("a").upper()}
        )
        assert shared_volume.live() == {}

    @requires("enforces_read_only")
    @enforced_by("restricts_access")
    def test_apply_without_only_closes_every_unwanted_host(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        shared_volume.target.apply(Export(shared_volume.volume.id))
        assert shared_volume.live() == {}
        assert login_is_refused(shared_volume, "a")
        assert login_is_refused(shared_volume, "b")

    def test_closing_a_volume_that_is_not_exported_succeeds(
        self, shared_volume: SharedVolume
    ) -> None:
        assert (
            shared_volume.target.apply(
                Export(shared_volume.volume.id), only={name("a")}
            )
            == ()
        )
        assert shared_volume.target.apply(Export(shared_volume.volume.id)) == ()
