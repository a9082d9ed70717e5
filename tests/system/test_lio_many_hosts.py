# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A detach beside hosts with several sessions, whatever their number."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, Make, refused
from tests.system.lio_node import HelperProcess, Node, initiator
from tests.system.raw_iscsi import RawSession

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_MANY = 200
_SECONDS = 0.25


@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize("logs_out", [True, False])
def test_a_detach_costs_the_same_beside_hosts_with_several_sessions(
    make: Make, helper: HelperProcess, logs_out: bool, mode: str
) -> None:
    """Of the sessions of a host the kernel shows one, so a dead one may be hidden."""
    costs = []
    for others in (0, _MANY):
        node = make()
        modes = {f"h{number}": mode for number in range(others)}
        node.apply(m=mode, b=mode, **modes)
        with _two_paths(node, "m"):
            host = node.login("b")
            if logs_out:
                host.logout()
                _wait_for_no_session(node.acl("b"))
            before, began = helper.calls(), time.monotonic()
            node.apply(only="b", m=mode, **modes)
            assert time.monotonic() - began < _SECONDS
            costs.append(helper.calls() - before)
            assert refused(node, "b")
            assert node.acl("b").exists()
    few, many = costs
    assert many < few + 10, costs


def _wait_for_no_session(acl: Path) -> None:
    """The kernel answers a logout before it ends the session."""
    info = acl / "info"
    until(lambda: info.read_text().startswith("No active"), "the session has ended")


@contextlib.contextmanager
def _two_paths(node: Node, host: str) -> Iterator[None]:
    """The host is logged in twice, as with multipath."""
    with contextlib.ExitStack() as stack:
        for number in (1, 2):
            session = RawSession(initiator(host), node.iqn, PORTAL, number=number)
            stack.enter_context(contextlib.closing(session))
        yield


def test_a_full_apply_removes_what_a_detach_has_left(node: Node) -> None:
    """The host was logged in, and another one had sessions that nothing shows."""
    node.apply(a="rw", m="ro", b="ro")
    node.login("b")
    a = node.login("a")
    with _two_paths(node, "m"):
        assert node.apply(only="b", a="rw", m="ro") == (_closed(node),)
        assert node.apply(only="b", a="rw", m="ro") == ()
        assert node.apply(a="rw", m="ro") == ()
        assert node.acl("b").exists()
        assert refused(node, "b")
        assert node.live() == {"a": "rw", "m": "ro"}
        a.write(0, ONE)
    until(lambda: node.apply(a="rw", m="ro") == () and not node.acl("b").exists())
    a.write(0, ONE)
    node.apply(only="b", a="rw", m="ro", b="ro")
    assert node.login("b").read(0) == ONE


def _closed(node: Node) -> str:
    return f"{initiator('b')} closed"
