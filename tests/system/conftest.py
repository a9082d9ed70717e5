# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The node under test: the installed daemon, its volumes, and hosts that use them.

Every test leaves the node as it was, and this is checked: a volume must have
neither target nor backstore after its last detach.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.system import groups
from tests.system.api import Api
from tests.system.daemons import Daemon, OwnHelper
from tests.system.hosts import Host, Traffic
from tests.system.kernel import Foreign
from tests.system.units import Journal
from tests.system.volumes import BorrowVolume, MakeDaemon, MakeHost, Volumes


@pytest.fixture(scope="session", autouse=True)
def own_groups() -> Iterator[None]:
    """Remove the volume groups of additional daemons after the last of them."""
    yield
    groups.remove_all()


@pytest.fixture(scope="session")
def api() -> Api:
    """The API of the installed daemon."""
    found = Api()
    until(found.answers)
    return found


@pytest.fixture(scope="session")
def volumes(api: Api) -> Iterator[Volumes]:
    kept = Volumes(api)
    yield kept
    kept.clear()


@pytest.fixture
def borrow(volumes: Volumes) -> Iterator[BorrowVolume]:
    """Borrow volumes for this test."""
    taken: list[str] = []

    def one(shared: bool = True) -> str:
        taken.append(volumes.borrow(shared))
        return taken[-1]

    yield one
    for volume in taken:
        if volumes.holds(volume):
            volumes.release(volume)


@pytest.fixture
def volume(borrow: BorrowVolume) -> str:
    """A volume that may be shared."""
    return borrow()


@pytest.fixture
def host(borrow: BorrowVolume) -> Iterator[MakeHost]:
    """Hosts by name. They log out before their volumes are released."""
    created: list[Host] = []

    def one(name: str) -> Host:
        created.append(Host(name))
        return created[-1]

    yield one
    for each in created:
        each.leave()


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    """A foreign target with a session, which the test must not disturb."""
    target = Foreign()
    other = Host("foreign")
    traffic = Traffic(other.login(target.info), "rw", at=8)
    before = target.tree()
    yield target
    after = target.tree()
    traffic.wait_for_progress()
    traffic.stop()
    other.leave()
    target.remove()
    assert after == before


@pytest.fixture
def journal() -> Journal:
    """The log lines of the units from now on."""
    return Journal()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[MakeDaemon]:
    """Additional daemons: ``daemon(node={...}, backend={...}).start()``."""
    created: list[Daemon] = []

    def one(**options: object) -> Daemon:
        directory = tmp_path / f"daemon{len(created)}"
        created.append(Daemon(directory, **options))  # type: ignore[arg-type]
        return created[-1]

    yield one
    for each in created:
        each.clear()


@pytest.fixture
def own_helper(tmp_path: Path) -> Iterator[OwnHelper]:
    """A root helper for this test only."""
    helper = OwnHelper(tmp_path / "helper")
    yield helper
    helper.stop()
