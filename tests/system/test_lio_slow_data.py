# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host, or its network, that pauses in the data of a write."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE
from tests.system.lio_node import Later, Node, initiator
from tests.system.raw_iscsi import RawSession

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
pytest_plugins = ["tests.system.lio_fixtures"]

_WRITE = bytes([0x2A, *bytes(7), 1, 0])
#: Longer than the kernel's own timeout (3 s), and how soon such a host is closed.
_PAUSE_SECONDS, _CLOSE_SECONDS = 4.0, 1.0
#: Half of open-iscsi's lu_reset_timeout.
_RESET_SECONDS = 15.0
_TASK_ABORTED = 0x40


class _Slow(RawSession):
    """It gives the data of a write when ``data`` is set."""

    def __init__(self, node: Node) -> None:
        super().__init__(initiator("a"), node.iqn, PORTAL)
        self.asked, self.data = threading.Event(), threading.Event()
        for _ in range(4):
            self.command(bytes(6), "-")  # it is told of earlier events first

    def _give(self, header: bytes, data: bytes) -> None:
        self.asked.set()
        self.data.wait(60)
        super()._give(header, data)


def test_a_write_whose_data_pauses_is_done(node: Node) -> None:
    node.apply(a="rw")
    with contextlib.closing(_Slow(node)) as host:
        timer = threading.Timer(_PAUSE_SECONDS, host.data.set)
        timer.start()
        assert host.command(_WRITE, "W", ONE) == "GOOD"
        timer.join()
    assert node.on_disk(0) == ONE


def test_a_pause_delays_a_lun_reset_of_another_host_for_less_than_it_waits(
    node: Node,
) -> None:
    """The kernel ends each command of the disk first; Linux waits 30 s for that."""
    node.apply(a="rw", b="rw")
    with contextlib.closing(_Slow(node)) as host:
        write = Later(host.command, _WRITE, "W", ONE)
        assert host.asked.wait(10)
        other = RawSession(initiator("b"), node.iqn, PORTAL, patience=_RESET_SECONDS)
        with contextlib.closing(other):
            assert other.task("LUN RESET") == "response 0"
        host.data.set()
        write.join()


def test_the_detach_of_a_host_that_acknowledges_nothing_ends_the_wait_for_it(
    node: Node,
) -> None:
    """Until then nobody could log in, as soon as the other host does."""
    node.apply(a="rw", b="rw")
    other = RawSession(initiator("b"), node.iqn, PORTAL, patience=_RESET_SECONDS)
    with contextlib.closing(_Slow(node)) as host, contextlib.closing(other):
        reset = _aborting(node, host, other)
        assert not reset.done
        began = time.monotonic()
        node.apply(b="rw")
        reset.join()
        assert time.monotonic() - began < _CLOSE_SECONDS
    node.login("b").read(0)


def _aborting(node: Node, host: _Slow, other: RawSession) -> Later:
    """A LUN RESET of the other host that has aborted a write of the host."""
    host.data.set()
    while True:
        host.ask(_WRITE, "W", len(ONE))
        request, _ = host._receive()
        reset = Later(other.task, "LUN RESET")
        node.login("b").read(0)  # served after the reset has come
        host._give(request, ONE)
        if host._receive()[0][3] == _TASK_ABORTED:
            return reset
        reset.join()


@pytest.mark.parametrize("modes", [{"b": "ro"}, {"a": "ro", "b": "ro"}, {}])
def test_a_host_that_stops_in_a_write_is_closed_at_once(
    node: Node, modes: dict[str, str]
) -> None:
    """Its detach, its change to read-only, and the end of the export do not wait."""
    node.apply(a="rw", b="ro")
    with contextlib.closing(_Slow(node)) as host:
        write = Later(host.command, _WRITE, "W", ONE)
        assert host.asked.wait(10)
        began = time.monotonic()
        node.apply(**modes) if modes else node.driver.remove(node.id)
        assert time.monotonic() - began < _CLOSE_SECONDS
        host.data.set()
        write.join()
    assert node.on_disk(0) != ONE
