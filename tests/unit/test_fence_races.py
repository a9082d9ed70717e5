# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fences in the middle of other work: none is proven while the access is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lunshare.agent.model.errors import AgentError, BackendFailed
from lunshare.agent.model.records import Attachment, Volume
from lunshare.agent.service.attachments.handover import NewHandover
from tests.stands.node import CTX, Node, attach, host_connector
from tests.stands.waiting import until
from tests.unit.test_fencing import (
    ALPHA,
    HANGS,
    RO,
    RW,
    fence,
    node,
    of,
    unfence,
    volume,
)

__all__ = ["node", "volume"]


def test_a_host_whose_connector_is_replaced_is_not_fenced_before_it_is_closed(
    node: Node, volume: Volume
) -> None:
    """The row has another host already, and its former one is still open."""
    row = of(node, volume, "alpha")
    connect = node.services.attachments.connect
    with node.target().failures.fail("apply.before", HANGS):
        with pytest.raises(BackendFailed):
            connect(CTX, row.id, host_connector("gamma"))
        assert node.live(volume.id)[ALPHA] == RW
        shown = fence(node)
        assert (shown.status, shown.names) == ("fence pending", [ALPHA])
    node.assembly.reconcile.run()
    shown = node.services.fences.show(CTX, "alpha")
    assert (shown.status, shown.volumes) == ("fenced", [])
    assert ALPHA not in node.live(volume.id)


def test_a_fence_that_is_ended_and_begun_again_meanwhile_is_not_proven_by_the_first(
    node: Node, volume: Volume
) -> None:
    row = of(node, volume, "alpha")
    with node.target().failures.fail("apply.before", HANGS):
        node.services.mode_changes.change(CTX, row.id, RO)
    applies, wrong = [0], []

    def passed(point: str) -> None:
        if point != "apply.before":
            return
        applies[0] += 1
        if applies[0] == 1:
            node.services.fences.unfence(CTX, "alpha", seconds=0)
        elif applies[0] == 2:
            node.services.fences.fence(CTX, "alpha", seconds=0)
        elif of(node, volume, "alpha").fenced_at and ALPHA in node.live(volume.id):
            wrong.append(applies[0])

    node.target().failures.watch(passed)
    fence(node)
    until(lambda: not node.assembly.jobs.in_progress(), "all jobs")
    assert (wrong, applies[0] > 2) == ([], True)
    assert ALPHA not in node.live(volume.id)


def _connect_again(node: Node, volume: Volume, row: Attachment) -> None:
    node.services.attachments.connect(CTX, row.id, host_connector("alpha"))


def _promote(node: Node, volume: Volume, row: Attachment) -> None:
    node.services.mode_changes.change(CTX, row.id, RW)


def _hand_over(node: Node, volume: Volume, row: Attachment) -> None:
    attach(node, volume, "gamma", "rw")
    node.services.handovers.hand_over(CTX, NewHandover(volume.id, row.id))


@pytest.mark.parametrize("work", [_connect_again, _promote, _hand_over])
def test_a_host_that_is_answered_after_its_fence_has_its_access(
    node: Node, volume: Volume, work: Callable[[Node, Volume, Attachment], None]
) -> None:
    """The row says rw, and the target has not followed it yet."""
    fence(node)
    with node.target().failures.fail("apply.before", HANGS):
        assert unfence(node).status == "pending"
    assert ALPHA not in node.live(volume.id)
    work(node, volume, of(node, volume, "alpha"))
    assert node.live(volume.id)[ALPHA] == RW


def test_no_attach_beside_a_fence_outlives_it(node: Node, volume: Volume) -> None:
    """Four clients attach and detach the host all the time, on four volumes."""
    volumes, ends = [node.shared_volume() for _ in range(4)], Event()

    def churn(each: Volume) -> None:
        while not ends.is_set():
            with contextlib.suppress(AgentError):
                row = attach(node, each, "alpha")
                node.services.attachments.delete(CTX, row.id)

    with ThreadPoolExecutor(4) as clients, contextlib.ExitStack() as stack:
        stack.callback(ends.set)
        jobs = [clients.submit(churn, each) for each in volumes]
        for _ in range(8):
            assert fence(node).status == "fenced"
            for _ in range(3):
                assert [a for v in volumes for a in node.live(v.id)] == []
            unfence(node)
        ends.set()
        for job in jobs:
            job.result()


def test_what_was_proven_is_the_fence_that_was_applied(
    node: Node, volume: Volume
) -> None:
    """All is taken while the target takes the writing: its answer is of writing."""
    applies, proven = [0], []

    def passed(point: str) -> None:
        if point != "apply.before":
            return
        applies[0] += 1
        if applies[0] == 1:
            node.services.fences.fence(CTX, "alpha", seconds=0)
        else:
            proven.append(of(node, volume, "alpha").fenced_at)

    node.target().failures.watch(passed)
    fence(node, writes_only=True)
    until(lambda: not node.assembly.jobs.in_progress(), "all jobs")
    assert proven == [None]
    assert of(node, volume, "alpha").fenced_at is not None
    assert ALPHA not in node.live(volume.id)
