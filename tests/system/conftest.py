# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node under test: the installed daemon, its volumes, hosts that use them.

Every test leaves the node as it found it, which is checked: the volumes it
used must have neither target nor backstore when their last host is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import groups
from tests.system.api import Api
from tests.system.daemons import Daemon, OwnHelper
from tests.system.hosts import Host, Traffic
from tests.system.kernel import Foreign
from tests.system.units import Journal
from tests.system.volumes import MakeDaemon, MakeHost, Take, Volumes
from tests.system.waiting import wait_until


@pytest.fixture(scope="session", autouse=True)
def own_groups() -> Iterator[None]:
    """The volume groups of further daemons go with the last of these."""
    yield
    groups.remove_all()


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
def take(volumes: Volumes) -> Iterator[Take]:
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
def volume(take: Take) -> str:
    """A volume that takes many hosts."""
    return take()


@pytest.fixture
def host(take: Take) -> Iterator[MakeHost]:
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
