# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that outlive their request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.model.records import NewVolume
from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner
from lunshare.drivers.fake import fake_storage
from tests.stands.node import CTX, Node
from tests.stands.waiting import until


@pytest.fixture
def jobs() -> Iterator[JobRunner]:
    made = JobRunner(0.0)
    yield made
    made.stop()


def test_a_step_runs_once_at_a_time(jobs: JobRunner) -> None:
    gate, begun, passed = threading.Event(), threading.Semaphore(0), []

    def step(ident: str) -> None:
        begun.release()
        assert gate.wait(20)
        passed.append(ident)

    first = jobs.submit(step, "a", "one")
    assert begun.acquire(timeout=20)
    # It has started, and may have read the row before: one more run, for all of these.
    second = jobs.submit(step, "a", "one")
    assert second is not first
    assert jobs.submit(step, "a", "one") is second
    other = jobs.submit(step, "b", "one")
    assert begun.acquire(timeout=20)
    assert not begun.acquire(blocking=False)
    gate.set()
    for job in (first, second, other):
        job.result(20)
    assert sorted(passed) == ["a", "a", "b"]


def test_a_run_that_has_not_started_is_shared(jobs: JobRunner) -> None:
    gate, passed = threading.Event(), []

    def step(ident: str) -> None:
        assert gate.wait(20)
        passed.append(ident)

    busy = [jobs.submit(step, str(number), "one") for number in range(8)]
    first = jobs.submit(step, "waits", "one")
    assert jobs.submit(step, "waits", "one") is first
    gate.set()
    for job in (*busy, first):
        job.result(20)
    assert passed.count("waits") == 1


def test_a_step_submitted_while_a_run_ends_runs_again(jobs: JobRunner) -> None:
    """The run has written its row and has not ended when the step is submitted."""
    closed, go = threading.Event(), threading.Event()
    row, done = ["first"], []

    def step(_ident: str) -> None:
        done.append(row.pop() if row else None)
        closed.set()
        assert go.wait(20)

    jobs.submit(step, "a", "one")
    assert closed.wait(20)
    row.append("second")
    second = jobs.submit(step, "a", "one")
    go.set()
    second.result(20)
    assert done == ["first", "second"]


def test_runs_without_a_thread_are_cancelled_at_the_stop() -> None:
    jobs, gate, begun = JobRunner(0.0), threading.Event(), threading.Event()

    def step(_ident: str) -> None:
        begun.set()
        assert gate.wait(20)

    first = jobs.submit(step, "a", "one")
    assert begun.wait(20)
    second = jobs.submit(step, "a", "one")
    ending = threading.Thread(target=jobs.stop)
    ending.start()
    until(lambda: jobs._pools[("one", JobPool.DISKS)]._shutdown)
    gate.set()
    ending.join(20)
    first.result(20)
    assert second.cancelled()


def test_a_request_that_comes_during_the_stop_leaves_its_step_to_a_restart() -> None:
    """It is not an error: the row shows the operation, and nothing is undone."""
    jobs, runs = JobRunner(20.0), list[str]()
    jobs.run_and_wait(runs.append, "first", "one")
    jobs.stop()
    for backend in ("one", "another"):
        jobs.run_and_wait(runs.append, f"later on {backend}", backend)
    assert runs == ["first"]


def test_a_step_runs_when_the_system_has_a_thread_again(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reconcile submits it. It never ran again: its first run had no thread."""
    ran = threading.Event()

    def step(_ident: str) -> None:
        ran.set()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading, "_start_new_thread", refuse)
        first = jobs.submit(step, "a", "one")
        jobs.run_and_wait(step, "a", "one")
    assert not ran.is_set()
    jobs.submit(step, "a", "one").result(20)
    assert ran.is_set()
    first.result(20)


def test_a_late_failure_is_logged(
    jobs: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def step(ident: str) -> None:
        gate.wait(20)
        raise ValueError(ident)

    jobs.run_and_wait(step, "late", "one")
    gate.set()
    until(lambda: "late" in caplog.text)


def test_a_hanging_backend_does_not_delay_others(tmp_path: Path) -> None:
    """As many of its volumes as there are threads, and more, are being deleted."""
    fake_storage.reset()
    node = Node(tmp_path, backends="one,two").start()
    service = node.services.volumes
    made = [service.create(CTX, NewVolume(1)) for _ in range(24)]
    assert min(len(node.driver(name).disks()) for name in ("one", "two")) > 8
    with node.driver("one").failures.hold("delete.before") as gate:
        for volume in made:
            service.delete(CTX, volume.id)
        assert gate.reached.wait(10)
        until(lambda: not node.driver("two").disks())
        assert node.driver("one").disks()
        gate.open.set()
    node.close()
