# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that leave an object of the kernel which cannot be removed.

Each such object stays until the guest ends, so this file comes after the one that
expects none (test_lio_takeover).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, refused
from tests.system.lio_node import (
    PREFIX,
    Backing,
    HelperProcess,
    Node,
    initiator,
    target,
)
from tests.system.raw_iscsi import RawSession
from tests.system.test_lio_hostile import _named_port, _pr_out

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]
pytest_plugins = ["tests.system.lio_fixtures"]

_SECONDS = 20.0
_SECONDS_EACH = 5.0


@pytest.mark.parametrize(
    ("mode", "hidden"), [("ro", False), ("rw", False), ("ro", True), ("rw", True)]
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
    if mode == "rw":
        node.apply(a="ro", d="rw")
        node.login("d").write(0, ONE)
        node.apply(a="rw", d="ro")
        node.apply(only="d", a="rw")
        node.apply(only="c", a="rw", c="ro")
    if hidden:
        node.apply(a="rw", b=mode)
        assert node.login("b").read(0) == ONE
    else:
        with pytest.raises(TargetFailed, match="left a session or a registration"):
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


def test_a_hidden_session_on_a_shared_lun_stops_its_own_volume_only(
    lost: Node, node: Node
) -> None:
    """Where hosts may reserve they share a LUN: see decision 0048."""
    lost.reservations = True
    lost.apply(a="rw", b="rw")
    node.apply(a="rw")
    (lost.group / "param/DefaultTime2Retain").write_text("20")
    a, hasty = lost.login("a"), target(lost.helper, deadline=1.0)
    with contextlib.closing(_raw(lost, 1)) as first, contextlib.closing(_raw(lost, 2)):
        _drop(lost, first)
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                hasty.apply(lost.export(a="rw"), only={initiator("b")})
    a.write(0, ONE)
    assert lost.on_disk(0) == ONE
    assert refused(lost, "b")
    with pytest.raises(DeadlineExceeded, match="reading"):
        lost.driver.observe_volume(lost.id)
    _quickly(node, "b", a="rw", b="ro")
    _quickly(node, "b", a="rw")


def _raw(node: Node, number: int, host: str = "b") -> RawSession:
    return RawSession(initiator(host), node.iqn, PORTAL, number=number)


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


@pytest.fixture
def lost(tmp_path: Path, backing: Backing) -> Iterator[Node]:
    """A volume that may not be removed, and a helper that then does not end.

    No other helper reads its target: it would not end either.
    """
    helper = HelperProcess(tmp_path, PREFIX + "lost:")
    driver = target(helper)
    driver.check()
    yield Node(helper, driver, backing)
    helper.abandon()


@pytest.mark.parametrize("isid", ["", ",i,0x800000000001"])
def test_a_registration_that_names_another_host_stops_nobody_else(
    lost: Node, node: Node, isid: str
) -> None:
    """SPEC_I_PT: pr-spec-i-pt.md. In 7.2 the removal of a mapped LUN never ends."""
    lost.reservations = True
    lost.apply(a="rw", b="ro", c="rw")
    node.apply(a="rw")
    with contextlib.closing(_raw(lost, 1, "a")) as sender:
        sender.command(*_pr_out(0, _named_port(lost, "c", isid)))
    for only, modes in (
        ("a", {"b": "ro", "c": "rw"}),
        ("c", {"b": "ro"}),
        ("d", {"b": "ro", "d": "rw"}),
        (None, {"b": "ro", "d": "rw"}),
        ("b", {"d": "rw"}),
        (None, {"d": "rw"}),
    ):
        _quickly(lost, only, **modes)
        assert lost.live() == modes
        assert lost.driver.compare(lost.export(**modes)) == ()
    lost.login("d").write(0, ONE)
    export = lost.driver.observe_volume(lost.id)
    assert export
    assert export.leftovers
    assert all("SPEC_I_PT" in sentence for sentence in export.leftovers)
    node.apply(only="b", a="rw", b="ro")
    assert node.login("b").read(0) != ONE
    try:
        _quickly(lost, "a", a="rw", d="rw")
    except TargetFailed as refusal:
        assert "left a session or a registration" in str(refusal)  # noqa: PT017
    try:
        lost.driver.remove(lost.id)
    except TargetFailed as refusal:
        assert "after the node's next start" in str(refusal)  # noqa: PT017
    assert lost.live() == {}
    _quickly(lost, "e", e="rw")
    lost.login("e").write(0, ONE)


def _quickly(node: Node, only: str | None, **modes: str) -> None:
    began = time.monotonic()
    node.apply(only=only, **modes)
    assert time.monotonic() - began < _SECONDS_EACH
