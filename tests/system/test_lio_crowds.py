# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Many hosts of a volume, closed at once, with and without sessions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from lunshare.drivers.errors import DeadlineExceeded
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, TWO, refused
from tests.system.lio_node import (
    HelperProcess,
    Later,
    Node,
    hanging,
    initiator,
    target,
)
from tests.system.raw_iscsi import RawSession

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
pytest_plugins = ["tests.system.lio_fixtures"]

_MANY = 500
# Reads and writes of the helper for a host: its protection (2), its logins (2, each
# read back), its depth, its session (3 times), its tag (4 times),
# its LUN.
_CALLS = 15
#: The default of lio_deadline.
_SECONDS = 30.0
_TEST_UNIT_READY = bytes(6)
_WRITE = bytes.fromhex("2a000000000000000100")

Modes = dict[str, str]


def _crowd(*modes: str) -> Modes:
    return {f"h{number}": modes[number % len(modes)] for number in range(_MANY)}


def test_hosts_without_a_session_cost_a_few_calls_each(
    node: Node, helper: HelperProcess
) -> None:
    crowd = _crowd("ro", "rw")
    node.apply(a="rw", **crowd)
    a, gone = node.login("a"), node.login("h0")
    gone.logout()
    a.write(0, ONE)
    before = helper.calls()
    changes = node.apply(only=crowd, a="rw")
    assert sorted(changes) == sorted(f"{initiator(host)} closed" for host in crowd)
    assert helper.calls() - before < _CALLS * _MANY + 100
    assert node.live() == {"a": "rw"}
    assert refused(node, "h0")
    assert refused(node, "h1")
    a.write(0, TWO)
    assert node.apply(only=crowd, a="rw") == ()


def test_sessions_of_many_hosts_end_within_the_deadline(node: Node) -> None:
    crowd = _crowd("rw", "ro")
    node.apply(a="rw", **crowd)
    a = node.login("a")
    with _logged_in(node, *crowd) as sessions:
        began = time.monotonic()
        node.apply(only=crowd, a="rw")
        assert time.monotonic() - began < _SECONDS
        assert node.live() == {"a": "rw"}
        for session in sessions:
            assert session.command(_TEST_UNIT_READY, "-") != "GOOD"
    a.write(0, ONE)


def _protection(node: Node, host: str) -> str:
    """Whether the host's LUN is protected; "" where it has none."""
    attribute = node.acl(host) / "lun_0/write_protect"
    return attribute.read_text().strip() if attribute.exists() else ""


@contextlib.contextmanager
def _logged_in(node: Node, *hosts: str) -> Iterator[list[RawSession]]:
    with contextlib.ExitStack() as stack:
        sessions = []
        for host in hosts:
            session = RawSession(initiator(host), node.iqn, PORTAL)
            sessions.append(stack.enter_context(contextlib.closing(session)))
            assert session.command(_TEST_UNIT_READY, "-") in ("GOOD", "06/29/00")
        yield sessions


def test_a_write_in_flight_delays_a_crowd_to_the_deadline_and_no_further(
    node: Node, helper: HelperProcess
) -> None:
    """All are closed to new writes at once. The next apply waits again, and goes on."""
    crowd = _crowd("rw")
    node.apply(a="rw", **crowd)
    session, before = node.login("h7"), node.received("h7")
    with hanging(node), _logged_in(node, "h8") as (other,):
        write = Later(session.write, 0, ONE)
        until(lambda: node.received("h7") > before)
        hasty = target(helper, deadline=2.0)
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(a="rw"), {initiator(host) for host in crowd})
        assert {_protection(node, host) for host in crowd} <= {"1", ""}
        assert _protection(node, "a") == "0"
        assert other.command(_WRITE, "W", ONE) == "07/27/00"
        assert not write.done
    assert node.apply(only=crowd, a="rw")
    assert node.on_disk(0) == ONE
    assert node.live() == {"a": "rw"}
