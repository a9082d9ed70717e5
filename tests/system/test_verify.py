# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon compares live targets with its rows: ``verify``, and its timer.

A person changes configfs under a live target; each change is found, classified, closed
first and put right, or only reported.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stands.waiting import Later, until
from tests.system import live_changes
from tests.system.daemons import Daemon, OwnHelper
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_hosts import Refused
from tests.system.live_changes import CHANGES, Hosts
from tests.system.units import run
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system

_DEADLINE = 4
CLEAN, REPAIRED, DRIFT, UNVERIFIED = "clean", "repaired", "drift", "unverified"


class Scene:
    """A daemon, and one volume with a writer and a reader."""

    def __init__(self, daemon: Daemon, host: MakeHost) -> None:
        self.daemon, self.volume = daemon, daemon.api.volume()
        self.writer, self.reader = host("writer"), host("reader")
        self.intruder, self.live = host("intruder"), Live(self.volume)
        self.infos = [
            daemon.api.attach(self.volume, each, mode)["connection_info"]
            for each, mode in ((self.writer, "rw"), (self.reader, "ro"))
        ]

    @property
    def hosts(self) -> Hosts:
        names = [each.initiator for each in (self.writer, self.reader, self.intruder)]
        return Hosts(self.live.group, *names)

    def verify(self, repair: bool = False, volume: bool = True) -> dict[str, Any]:
        fields = {"repair": repair} | ({"volume_id": self.volume} if volume else {})
        return verify(self.daemon, **fields)

    def works(self) -> None:
        """The writer writes, the reader reads and cannot write, nobody else gets in."""
        writer, reader = (
            host.login(info)
            for host, info in zip((self.writer, self.reader), self.infos, strict=True)
        )
        writer.write(0, block("verified"))
        assert reader.read(0) == block("verified")
        assert write_protected(reader)
        assert self.intruder.refused({**self.infos[0], "auth_method": None})

    def end(self) -> None:
        for host in (self.writer, self.reader, self.intruder):
            host.leave()
        for attachment in self.daemon.api.attachments(self.volume):
            assert self.daemon.api.detach(attachment["id"])[0] == 200
        assert self.live.gone
        self.daemon.api.delete_volume(self.volume)


def verify(daemon: Daemon, **fields: Any) -> dict[str, Any]:
    answer = daemon.api.must("POST", "/v3/lunshare/verify", {"verify": fields})
    found: dict[str, Any] = answer["verify"]
    return found


def status(found: dict[str, Any]) -> set[str]:
    return {name for name, count in found["counts"].items() if count}


def output(daemon: Daemon) -> str:
    assert daemon.process
    return daemon.process.output()


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that reconciles at its start only."""
    backend = {"lio_deadline": _DEADLINE}
    daemon = Daemon(tmp_path_factory.mktemp("still"), backend=backend)
    try:
        yield daemon.start()
    finally:
        daemon.clear()


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that compares every second, and only reports."""
    node = {"reconcile_interval": 1, "drift": "report"}
    daemon = Daemon(tmp_path_factory.mktemp("reporting"), node=node)
    try:
        yield daemon.start()
    finally:
        daemon.clear()


@pytest.fixture
def scene(still: Daemon, host: MakeHost) -> Iterator[Scene]:
    made = Scene(still, host)
    yield made
    made.end()


@pytest.fixture
def reported(reporting: Daemon, host: MakeHost) -> Iterator[Scene]:
    made = Scene(reporting, host)
    yield made
    made.end()


def test_each_change_is_found_classified_and_put_right(scene: Scene) -> None:
    assert status(scene.verify()) == {CLEAN}
    for name, (change, kind) in CHANGES.items():
        change(scene.hosts)
        found = scene.verify()
        assert status(found) == {DRIFT}, name
        (target,) = found["targets"]
        assert kind in {drift["kind"] for drift in target["drift"]}, (name, target)
        assert all(drift["left"] for drift in target["drift"])
        assert status(scene.verify()) == {DRIFT}, f"{name} is left"
        repaired = scene.verify(repair=True)
        assert status(repaired) == {REPAIRED}, (name, repaired)
        assert status(scene.verify(volume=False)) == {CLEAN}, name
    scene.works()
    log = output(scene.daemon)
    assert log.count("drift: volume=") >= len(CHANGES)
    assert log.count("drift repaired: volume=") >= len(CHANGES)
    assert "guessed" not in log


def test_who_writes_too_much_is_closed_first(scene: Scene) -> None:
    """A session that came in meanwhile is ended, and everything else stays."""
    writer = scene.writer.login(scene.infos[0])
    for name in ("an ACL added", "a portal added", "a secret changed"):
        CHANGES[name][0](scene.hosts)
    intruder = scene.intruder.login({**scene.infos[0], "auth_method": None})
    intruder.write(8, block("stolen"))
    (target,) = scene.verify(repair=True)["targets"]
    kinds = [drift["kind"] for drift in target["drift"]]
    assert kinds[0] == "wider"
    assert {"portal", "credential"} <= set(kinds)
    assert not intruder.alive
    assert writer.alive
    scene.works()


@pytest.mark.parametrize(
    "name", ["an ACL added", "a reader may write", "a portal added"]
)
def test_a_node_that_only_reports_leaves_a_change(reported: Scene, name: str) -> None:
    change, kind = CHANGES[name]

    def named() -> bool:
        health = api.must("GET", "/v3/lunshare/health")["health"]
        mine = [each for each in health["failed"] if reported.volume in each]
        return any(f"(drift: {kind})" in each for each in mine)

    def verified() -> bool:
        hosts = api.must("GET", "/v3/lunshare/hosts")["hosts"]
        return all(host["verified_at"] for host in hosts)

    api = reported.daemon.api
    until(verified)
    change(reported.hosts)
    until(named)
    before, turns = output(reported.daemon).count("drift: volume="), _turns(api)
    until(lambda: _turns(api) > turns)
    assert named(), "it is left"
    assert output(reported.daemon).count("drift: volume=") == before, "it is named once"
    assert status(reported.verify(repair=True)) == {REPAIRED}
    until(lambda: not named())
    reported.works()


def _turns(api: Any) -> float:
    """When the last reconcile ended."""
    name = "lunshare_reconcile_last_success_timestamp_seconds "
    _, text = api._send("GET", "/metrics", None)
    (line,) = (each for each in text.decode().splitlines() if each.startswith(name))
    return float(line.removeprefix(name))


def test_what_is_not_ours_is_reported_and_stays(scene: Scene) -> None:
    theirs = f"{scene.live.iqn}.theirs"
    target = live_changes.add_foreign_target(scene.hosts, theirs)
    try:
        found = scene.verify(repair=True)
        (drift,) = found["targets"][0]["drift"]
        assert drift["kind"] == "foreign"
        assert theirs in drift["what"]
        assert target.exists()
    finally:
        live_changes.remove_foreign_target(target)
    assert status(scene.verify()) == {CLEAN}


def test_what_a_reader_tries_to_write_is_counted(scene: Scene) -> None:
    reader = scene.reader.login(scene.infos[1])
    for _ in range(40):
        with pytest.raises(Refused):
            reader.write(0, bytes(64 * 1024))
    lines = scene.daemon.api.must("GET", "/v3/lunshare/hosts")["hosts"]
    refused = {each["initiator"]: each["refused_mib"] for each in lines}
    assert refused == {scene.reader.initiator: 2, scene.writer.initiator: None}


def test_operations_meanwhile_are_never_drift(scene: Scene, host: MakeHost) -> None:
    over, found = threading.Event(), []

    def look() -> None:
        while not over.is_set():
            found.append(verify(scene.daemon))

    thread = threading.Thread(target=look)
    thread.start()
    api, more = scene.daemon.api, host("more")
    try:
        for turn in range(15):
            ident = api.attach(scene.volume, more, "ro")["id"]
            _hand_over(scene, turn)
            assert api.detach(ident)[0] == 200
    finally:
        over.set()
        thread.join(60)
    assert len(found) > 5
    assert not any(each["counts"][DRIFT] for each in found)
    assert not any(target["drift"] for each in found for target in each["targets"])
    assert status(scene.verify()) == {CLEAN}


def _hand_over(scene: Scene, turn: int) -> None:
    """Let the reader write instead of the writer, or the other way round."""
    hosts: list[Host] = [scene.writer, scene.reader]
    rows = {
        each["initiator"]: each["attachment_id"]
        for each in scene.daemon.api.must("GET", "/v3/lunshare/hosts")["hosts"]
    }
    old, new = (rows[hosts[(turn + more) % 2].initiator] for more in (0, 1))
    body = {"lunshare:handover": {"from": old, "to": new}}
    scene.daemon.api.must("POST", f"/v3/volumes/{scene.volume}/action", body)


def test_a_helper_that_dies_leaves_a_target_unverified(
    tmp_path: Path, host: MakeHost
) -> None:
    helper = OwnHelper(tmp_path / "helper")
    often = {"backend_stats_polling_interval": 1}  # it sees that the helper is back
    daemon = Daemon(tmp_path / "daemon", helper=helper.socket, node=often)
    try:
        scene = Scene(daemon.start(), host)
        CHANGES["a reader may write"][0](scene.hosts)
        helper.process.kill()
        found = scene.verify(repair=True)
        assert status(found) == {UNVERIFIED}
        assert found["targets"][0]["problem"]
        helper.start()
        until(lambda: status(scene.verify(repair=True)) in ({CLEAN}, {REPAIRED}))
        assert scene.live.modes()[scene.reader.initiator] == "ro"
        for _ in range(5):  # killed at any moment of a repair
            CHANGES["an ACL added"][0](scene.hosts)
            thread = threading.Thread(target=scene.verify, args=(True,))
            thread.start()
            helper.process.kill()
            thread.join(60)
            helper.start()
            until(lambda: status(scene.verify(repair=True)) in ({CLEAN}, {REPAIRED}))
            assert scene.intruder.initiator not in scene.live.modes()
        scene.works()
        scene.end()
    finally:
        daemon.clear()
        helper.stop()


def test_a_volume_that_hangs_delays_no_other(scene: Scene, host: MakeHost) -> None:
    """The end of a session waits for its disk, and its target can not be compared."""
    other = Scene(scene.daemon, host)
    try:
        for name in ("an ACL added", "a target without CHAP"):
            CHANGES[name][0](scene.hosts)
        session = scene.intruder.login({**scene.infos[0], "auth_method": None})
        CHANGES["a reader may write"][0](other.hosts)
        with _suspended(scene):
            name, received = scene.intruder.initiator, scene.live.received
            before = received(name)
            write = Later(session.write, 0, block("in progress"))
            until(lambda: received(name) > before)
            began = time.monotonic()
            found = verify(scene.daemon, repair=True)
            took = time.monotonic() - began
            by_volume = {each["volume_id"]: each for each in found["targets"]}
            assert by_volume[other.volume]["status"] == REPAIRED
            assert by_volume[scene.volume]["status"] == DRIFT
            assert "seconds" in by_volume[scene.volume]["problem"]
            assert took < _DEADLINE + 10
            protected = scene.live.acl(name) / "lun_0/write_protect"
            assert protected.read_text().strip() == "1"
        until(lambda: write.done)
        until(lambda: status(scene.verify(repair=True)) in ({CLEAN}, {REPAIRED}))
        assert name not in scene.live.modes()
        other.works()
        scene.works()
    finally:
        other.end()


@contextlib.contextmanager
def _suspended(scene: Scene) -> Iterator[None]:
    """I/O of the volume's disk waits until the block ends."""
    words = (scene.daemon.group, f"volume-{scene.volume}")
    mapped = "-".join(word.replace("-", "--") for word in words)
    run("dmsetup", "suspend", "--noflush", "--nolockfs", mapped)
    try:
        yield
    finally:
        run("dmsetup", "resume", mapped)
