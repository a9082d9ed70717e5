# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An administrator changes the live target; the next reconcile repairs it.

The daemon is started by the tests and reconciles every two seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.daemons import Daemon, remove_disk
from tests.system.hosts import Traffic, block, write_protected
from tests.system.kernel import Foreign, Live
from tests.system.units import run
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that reconciles often."""
    node = {"reconcile_interval": 2}
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), node=node)
    try:
        yield daemon.start()
    finally:
        daemon.clear()


@pytest.fixture(scope="module")
def own_volume(eager: Daemon) -> str:
    """Its only volume."""
    return eager.api.volume()


@pytest.fixture
def shared(eager: Daemon, own_volume: str) -> Iterator[str]:
    """Its volume, without attachments before and after."""
    yield own_volume
    for attachment in eager.api.attachments(own_volume):
        assert eager.api.detach(attachment["id"])[0] == 200
    assert Live(own_volume).gone


def _logged(daemon: Daemon, *words: str) -> bool:
    """Whether one line of its log has all these words."""
    assert daemon.process
    lines = daemon.process.output().splitlines()
    return any(all(word in line for word in words) for line in lines)


def test_wiped_target_is_rebuilt_with_the_same_names_and_secrets(
    eager: Daemon, shared: str, host: MakeHost, foreign: Foreign
) -> None:
    writer, reader, live = host("writer"), host("reader"), Live(shared)
    infos = {
        each.name: eager.api.attach(shared, each, mode)["connection_info"]
        for each, mode in ((writer, "rw"), (reader, "ro"))
    }
    session = writer.login(infos["writer"])
    session.write(0, block("before"))
    serial = session.serial
    assert serial == shared
    live.wipe()
    wanted = {writer.initiator: "rw", reader.initiator: "ro"}
    until(lambda: live.modes() == wanted)
    until(lambda: not writer.refused(infos["writer"]))
    session = writer.login(infos["writer"])
    assert session.serial == serial
    assert session.read(0) == block("before")
    assert write_protected(reader.login(infos["reader"]))
    assert _logged(eager, "reconcile changed", shared, "target", "created")
    assert foreign.path.exists()


def test_access_without_an_attachment_is_closed(
    eager: Daemon, shared: str, host: MakeHost, foreign: Foreign
) -> None:
    writer, intruder, live = host("writer"), host("intruder"), Live(shared)
    info = eager.api.attach(shared, writer)["connection_info"]
    with Traffic(writer.login(info), "rw") as traffic:
        before = live.identity(writer.initiator)
        live.intrude(intruder.initiator)
        until(lambda: intruder.initiator not in live.modes())
        assert intruder.refused({**info, "auth_method": None})
        assert live.identity(writer.initiator) == before
        traffic.wait_for_progress()
    until(
        lambda: _logged(
            eager, "reconcile changed", shared, intruder.initiator, "closed"
        )
    )
    assert foreign.path.exists()


def test_read_only_host_made_writable_by_hand_is_restricted(
    eager: Daemon, shared: str, host: MakeHost
) -> None:
    writer, reader, live = host("writer"), host("reader"), Live(shared)
    info = eager.api.attach(shared, writer)["connection_info"]
    mine = eager.api.attach(shared, reader, "ro")["connection_info"]
    session = reader.login(mine)
    with Traffic(writer.login(info), "rw") as traffic:
        before = live.identity(writer.initiator)
        live.protect(reader.initiator, "0")
        until(lambda: live.modes()[reader.initiator] == "ro")
        # No write that came in meanwhile is still running: the session ended.
        until(lambda: not session.alive)
        assert write_protected(reader.login(mine))
        assert live.identity(writer.initiator) == before
        traffic.wait_for_progress()
    until(lambda: _logged(eager, "reconcile changed", shared, reader.initiator))


def test_orphans_are_reported_and_not_changed(eager: Daemon, api: Api) -> None:
    lost = str(uuid.uuid4())
    live = Live(lost)
    size = ("--thin", "--virtualsize", "1g")
    pool = f"{eager.group}/{eager.group}-pool"
    run("lvcreate", "-qq", *size, "-n", f"volume-{lost}", pool)
    try:
        live.group.mkdir(parents=True)
        until(lambda: len(_about(eager.api, lost)) == 2)
        assert eager.api.call("GET", "/readyz")[0] == 200
        for what in ("export of volume", "disk /dev/"):
            assert _logged(eager, "did not touch", what, lost)
        assert live.group.exists()
        assert lost in run("lvs", "-o", "lv_name", eager.group)
    finally:
        if live.path.exists():
            live.group.rmdir()
            live.path.rmdir()
        remove_disk(lost, eager.group)
    until(lambda: not _about(eager.api, lost))


def _about(api: Api, volume: str) -> list[str]:
    """The orphans that belong to this volume."""
    return [sentence for sentence in api.unknown() if volume in sentence]
