# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work that outlives its request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.records import NewVolume
from agent.service.jobs import Jobs
from drivers import fake_storage
from tests.api.calls import until
from tests.node import CTX, Node


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs(0.0)
    yield made
    made.end()


def test_a_step_is_under_way_once(jobs: Jobs) -> None:
    gate, passed = threading.Event(), []

    def step(ident: str) -> None:
        gate.wait(20)
        passed.append(ident)

    first = jobs.start(step, "a", "one")
    assert jobs.start(step, "a", "one") is first
    other = jobs.start(step, "b", "one")
    gate.set()
    first.result(20)
    other.result(20)
    assert sorted(passed) == ["a", "b"]
    assert jobs.start(step, "a", "one") is not first


def test_what_fails_late_is_in_the_log(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def step(ident: str) -> None:
        gate.wait(20)
        raise ValueError(ident)

    jobs.attempt(step, "late", "one")
    gate.set()
    until(lambda: "late" in caplog.text)


def test_a_backend_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
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
