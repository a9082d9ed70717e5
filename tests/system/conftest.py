# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node under test: the installed daemon, its volumes, hosts that use them.

Every test leaves the node as it found it, which is checked: the volumes it
used must have neither target nor backstore when their last host is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.api import Api
from tests.system.daemons import Daemon, OwnHelper
from tests.system.hosts import Host, Traffic
from tests.system.kernel import Foreign, Live
from tests.system.units import Journal
from tests.system.waiting import wait_until

MakeHost = Callable[..., Host]
MakeDaemon = Callable[..., Daemon]


class Volumes:
    """Volumes that tests use one after the other: making one takes a second."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._free: dict[bool, list[str]] = {True: [], False: []}
        self._shared: dict[str, bool] = {}

    def take(self, shared: bool = True) -> str:
        """One that nobody has."""
        if self._free[shared]:
            return self._free[shared].pop()
        made = self._api.volume(shared)
        self._shared[made] = shared
        return made

    def give_back(self, volume: str) -> None:
        """Take it from all hosts; nothing of it stays in the kernel."""
        for attachment in self._api.attachments(volume):
            status, answer = self._api.detach(attachment["id"])
            assert status in (200, 404), answer
        assert Live(volume).gone
        self._free[self._shared[volume]].append(volume)

    def forget(self, volume: str) -> None:
        """The test has deleted it."""
        del self._shared[volume]

    def holds(self, volume: str) -> bool:
        return volume in self._shared

    def clear(self) -> None:
        """Delete all."""
        for volume in self._shared:
            self._api.delete_volume(volume)


@pytest.fixture(scope="session")
def api() -> Api:
    """The installed daemon's."""
    found = Api()
    wait_until(found.answers)
    return found


@pytest.fixture(scope="session")
def volumes(api: Api) -> Iterator[Volumes]:
    kept = Volumes(api)
    yield kept
    kept.clear()


@pytest.fixture
def take(volumes: Volumes) -> Iterator[Callable[..., str]]:
    """Take volumes for this test."""
    taken: list[str] = []

    def one(shared: bool = True) -> str:
        taken.append(volumes.take(shared))
        return taken[-1]

    yield one
    for volume in taken:
        if volumes.holds(volume):
            volumes.give_back(volume)


@pytest.fixture
def volume(take: Callable[..., str]) -> str:
    """A volume that takes many hosts."""
    return take()


@pytest.fixture
def host(take: Callable[..., str]) -> Iterator[MakeHost]:
    """Hosts by name. They are gone before their volumes are taken back."""
    made: list[Host] = []

    def one(name: str) -> Host:
        made.append(Host(name))
        return made[-1]

    yield one
    for each in made:
        each.leave()


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    """Somebody else's target with a session: the test may not disturb it."""
    target = Foreign()
    stranger = Host("stranger")
    traffic = Traffic(stranger.login(target.info), "rw", at=8)
    before = target.tree()
    yield target
    after = target.tree()
    traffic.goes_on()
    traffic.stop()
    stranger.leave()
    target.remove()
    assert after == before


@pytest.fixture
def journal() -> Journal:
    """What our units say from here on."""
    return Journal()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[MakeDaemon]:
    """Further daemons; ``daemon(node={...}, backend={...}).start()``."""
    made: list[Daemon] = []

    def one(**options: object) -> Daemon:
        directory = tmp_path / f"daemon{len(made)}"
        made.append(Daemon(directory, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for each in made:
        each.clear()


@pytest.fixture
def own_helper(tmp_path: Path) -> Iterator[OwnHelper]:
    """A root helper of the test's own."""
    helper = OwnHelper(tmp_path / "helper")
    yield helper
    helper.stop()
