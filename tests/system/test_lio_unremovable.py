# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that leave an object of the kernel which cannot be removed.

Each such object stays until the guest ends, so this file comes after the one that
expects none (test_lio_takeover).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from lunshare.drivers.errors import TargetFailed
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, refused
from tests.system.lio_node import Node, initiator
from tests.system.raw_iscsi import RawSession

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]
pytest_plugins = ["tests.system.lio_fixtures"]

_SECONDS = 20.0


@pytest.mark.parametrize(
    ("mode", "hidden"), [("ro", False), ("rw", False), ("ro", True)]
)
def test_a_session_that_never_ends_stops_nobody_else(
    node: Node, mode: str, hidden: bool
) -> None:
    """Its connection has ended before its host was detached: logout-of-a-connection.md.

    It is held for a time, as in exports of older versions. A host that aims needs no
    such time.
    """
    node.apply(a="rw", b=mode, c="ro")
    (node.group / "param/DefaultTime2Retain").write_text("20")
    a = node.login("a")
    with contextlib.closing(_raw(node, 1)) as first:
        if hidden:
            with contextlib.closing(_raw(node, 2)):
                _drop(node, first)
                node.apply(only="b", a="rw", c="ro")
        else:
            _drop(node, first)
            node.apply(only="b", a="rw", c="ro")
    began = time.monotonic()
    assert node.live() == {"a": "rw", "c": "ro"}
    assert refused(node, "b")
    a.write(0, ONE)
    node.apply(only="d", a="rw", c="ro", d="ro")
    assert node.login("d").read(0) == ONE
    node.apply(only="cd", a="rw")
    if hidden:
        node.apply(a="rw", b=mode)
        assert node.login("b").read(0) == ONE
    else:
        with pytest.raises(TargetFailed, match="left a session at this volume"):
            node.apply(a="rw", b=mode, c="ro")
        assert node.login("c").read(0) == ONE
    node.apply(a="rw")
    assert refused(node, "b")
    node.driver.remove(node.id)
    assert not node.backstores()
    node.apply(a="rw", d="ro")
    assert node.login("d").read(0) == ONE
    assert refused(node, "b")
    assert time.monotonic() - began < _SECONDS


def _raw(node: Node, number: int) -> RawSession:
    return RawSession(initiator("b"), node.iqn, PORTAL, number=number)


def _drop(node: Node, session: RawSession) -> None:
    """End the connection, and wait until the kernel has seen it."""
    assert session.answered["DefaultTime2Retain"] == "20"
    before = _connections()
    session.close_connection()
    until(lambda: _connections() < before)


def _connections() -> int:
    """Each has a thread of the kernel."""
    names = (each.read_text() for each in Path("/proc").glob("[0-9]*/comm"))
    return sum(name == "iscsi_trx\n" for name in names)
