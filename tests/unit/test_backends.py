# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Backends that are slow, hang, fail, or are missing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lunshare.agent import backends
from lunshare.agent.backends import NodeBackend
from lunshare.agent.model.errors import BackendFailed, BackendUnavailable, Busy
from lunshare.agent.model.records import NewVolume, Page
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.threads.limit import Limit
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.backend import Backend
from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, TargetFailed
from lunshare.drivers.fake import FakeVolumes, fake_storage
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.targets.fake import FakeTarget
from tests.stands.node import CTX, Node, attach, initiator, node_fixture
from tests.stands.waiting import until

BOTH = "fake,second"


class Killed(BaseException):
    """The daemon is killed here."""


node = node_fixture(forget_storage=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fake_storage.reset()
    return tmp_path


def test_requests_beyond_the_share_of_a_backend_wait(path: Path) -> None:
    node = Node(path, extra="osapi_threads = 6").start()
    volumes = [node.shared_volume() for _ in range(8)]
    never = threading.Event()

    def slow(_point: str) -> None:
        never.wait(0.02)

    node.target().failures.watch(slow)
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(attach, node, volume, "a") for volume in volumes]
        assert all(job.result(10) for job in jobs)
    node.close()


def test_only_a_few_threads_wait_for_a_hanging_volume() -> None:
    locks, gate = (
        VolumeLocks(timeout=30, patient=2, hanging_after=0.05),
        threading.Event(),
    )
    inside = threading.Event()

    def hang() -> None:
        with locks.volume("v", "a call that hangs"):
            inside.set()
            assert gate.wait(30)

    def wait() -> str:
        try:
            with locks.volume("v", "waiting"):
                return "had it"
        except Busy as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        threads.submit(hang)
        assert inside.wait(10)
        waiting = [threads.submit(wait) for _ in range(6)]
        until(lambda: sum(job.done() for job in waiting) >= 4)
        gate.set()
        said = [job.result(10) for job in waiting]
    assert said.count("had it") == 2
    assert sum("a call that hangs has been running" in each for each in said) == 4


def test_a_backend_that_is_no_longer_enabled_is_reported_and_delays_nothing(
    path: Path,
) -> None:
    node = Node(path, backends=BOTH).start()
    volumes = [node.services.volumes.create(CTX, NewVolume(1)) for _ in range(8)]
    left = [volume for volume in volumes if volume.backend == "second"]
    kept = [volume for volume in volumes if volume.backend == "fake"]
    assert left
    assert kept
    row = attach(node, left[0], "a")
    node.close()

    node = Node(path).start()
    assert node.outcome.failed == []
    health = node.services.node.health()
    assert not health.ready
    assert "backend second has volumes and is not among" in health.problems[0]
    assert len(node.services.volumes.list(CTX, Page(None, 100))) == 8
    assert node.services.node.host_of("second").endswith("@second#second")
    with pytest.raises(BackendUnavailable, match="name it there again"):
        node.services.attachments.delete(CTX, row.id)
    attach(node, kept[0], "b")
    assert node.live(kept[0].id) == {initiator("b"): "rw"}
    node.close()


def test_an_export_that_cannot_be_applied_is_reported(node: Node) -> None:
    volume = node.shared_volume()
    attach(node, volume, "a")
    refused = TargetFailed(volume.id, "because of the test")
    with node.target().failures.fail("apply.before", refused):
        node.assembly.reconcile.run()
    health = node.services.node.health()
    assert health.ready
    assert volume.id in health.failed[0]
    node.assembly.reconcile.run()
    assert node.services.node.health().failed == ()


def test_exports_do_not_wait_for_the_creation_of_a_disk(path: Path) -> None:
    node = Node(path).start()
    volume = node.shared_volume()
    attach(node, volume, "a")
    with node.driver().failures.fail("create.half", Killed()), pytest.raises(Killed):
        node.services.volumes.create(CTX, NewVolume(1))
    node.close()
    node.target().storage.exports.clear()

    node = Node(path)
    with node.driver().failures.hold("create.before") as gate:
        reconciling = threading.Thread(target=node.start)
        reconciling.start()
        assert gate.reached.wait(10)
        assert node.live(volume.id) == {initiator("a"): "rw"}
    reconciling.join(10)
    found = node.services.volumes.list(CTX, Page(None, 10))
    assert {v.own_status for v in found} == {VolumeStatus.AVAILABLE}
    node.close()


def test_reconcile_deletes_a_failed_volume_whose_cleanup_failed(node: Node) -> None:
    failed = CommandFailed(("lvcreate",), 5, "because of the test")
    with (
        node.driver().failures.fail("create.half", RuntimeError("unforeseen")),
        node.driver().failures.fail("delete.before", failed),
        pytest.raises(RuntimeError),
    ):
        node.services.volumes.create(CTX, NewVolume(1))
    (left,) = node.services.volumes.list(CTX, Page(None, 10))
    assert left.status is VolumeStatus.DELETING
    node.assembly.reconcile.run()
    assert node.services.volumes.list(CTX, Page(None, 10)) == []
    assert node.driver().disks() == ()


def test_a_failed_operation_starts_a_health_check(node: Node) -> None:
    backend = node.assembly.backends["fake"]
    backend._last_check -= 60  # the timer's last check was a while ago
    gone = CommandFailed(("lvcreate",), 5, "Volume group lunshare not found")
    failures = node.driver().failures
    with failures.fail("create.before", gone), failures.fail("check", gone):
        with pytest.raises(BackendFailed):
            node.plain_volume()
        until(lambda: not backend.up)
    assert "Volume group lunshare not found" in str(backend.problem)
    assert node.services.node.health().problems


def test_a_clock_that_was_set_back_delays_no_health_check(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = node.assembly.backends["fake"]
    monkeypatch.setattr(backends, "_SUSPECT_SECONDS", 0.0)
    backend.checked_at += 10**8  # the last check was three years later
    gone = CommandFailed(("lvcreate",), 5, "Volume group lunshare not found")
    failures = node.driver().failures
    with failures.fail("create.before", gone), failures.fail("check", gone):
        with pytest.raises(BackendFailed):
            node.plain_volume()
        until(lambda: not backend.up)


def test_the_error_of_a_backend_is_reported_without_a_thread_for_its_check(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client got 500, and the log did not say what the target had refused."""
    volume = node.shared_volume()
    monkeypatch.setattr(backends, "_SUSPECT_SECONDS", 0.0)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    failed = TargetFailed(volume.id, "no ACL")
    with (
        monkeypatch.context() as full,
        node.target().failures.fail("apply.before", failed),
    ):
        full.setattr(threading, "_start_new_thread", refuse)
        with pytest.raises(BackendFailed, match="no ACL"):
            attach(node, volume, "a")
    attach(node, volume, "a")


def test_the_log_shows_when_a_pool_closes_and_opens(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(path).start()
    storage = node.driver().storage
    storage.foreign = node.driver().capacity().total  # others have filled the pool
    for _ in range(2):
        node.services.node.refresh()
    said = [line for line in capsys.readouterr().out.splitlines() if "] pool " in line]
    assert len(said) == 1
    assert said[0].endswith("[fake] pool closed: the pool has no free space")
    (closed,) = node.services.node.health().failed
    assert closed.startswith(
        "pool of backend fake is closed: the pool has no free space; seen 20"
    )
    storage.foreign = 0
    node.services.node.refresh()
    assert "[fake] pool open again" in capsys.readouterr().out
    node.close()


def test_the_error_of_a_failed_detach_names_what_is_open_and_what_to_do(
    node: Node,
) -> None:
    row = attach(node, node.plain_volume(), "host1")
    with (
        node.target().failures.fail("remove.before", DeadlineExceeded("it", 30.0)),
        pytest.raises(BackendUnavailable) as failed,
    ):
        node.services.attachments.delete(CTX, row.id)
    said = failed.value.message
    assert said.startswith(f"attachment {row.id} of volume {row.volume_id} is error_")
    assert "host host1 may still have access" in said
    assert "repeat the request" in said


def test_the_log_names_the_volume_of_a_job_that_fails_after_its_answer(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(path, extra="create_wait = 0").start()
    gone = CommandFailed(("lvcreate",), 5, "no such group")
    said: list[str] = []

    def logged() -> bool:
        said.append(capsys.readouterr().out)
        return (
            f"[fake] job failed: step=finish_create id={volume.id}: lvcreate"
            in "".join(said)
        )

    with node.driver().failures.fail("create.before", gone):
        volume = node.plain_volume()
        until(logged)
    node.close()


def test_an_error_is_logged_once(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = CommandFailed(("vgs",), 5, "because of the test")
    node = Node(path)
    with node.driver().failures.fail("check", gone):
        node.start()
    (line,) = (
        each for each in capsys.readouterr().out.splitlines() if "backend state" in each
    )
    assert line.count("because of the test") == 1
    node.close()


class Following(FakeVolumes):
    """Reports that storage changed while its first check looks at it."""

    checks = 0

    def follow_storage(self, changed: Callable[[], object]) -> None:
        self._changed = changed

    def check(self) -> None:
        self.checks += 1
        if self.checks == 1:
            self.reporting = threading.Thread(target=self._changed)
            self.reporting.start()
            until(self.reporting.is_alive)


def test_storage_that_changes_during_a_check_is_checked_again() -> None:
    root = Helper("/nowhere")
    volumes = Following("fake", defaults(Following), root)
    target = FakeTarget("fake", defaults(FakeTarget), root)
    backend = NodeBackend("fake", Backend(volumes, target), {}, Limit(1))
    backend.follow_storage()
    backend.start_check()
    until(lambda: volumes.checks == 2)
    volumes.reporting.join()
