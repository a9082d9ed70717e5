# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A login that has begun holds its host's ACL, before any secret, for 15 s."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from lunshare.drivers.values import Auth, Export
from tests.stands.waiting import until
from tests.system.begun_logins import begun
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, protected, refused
from tests.system.lio_node import Node, initiator

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
pytest_plugins = ["tests.system.lio_fixtures"]

_SECONDS = 1.0


def _timed(what: str, change: Callable[[], object]) -> float:
    began = time.monotonic()
    change()
    took = time.monotonic() - began
    print(f"{what}: {1000 * took:.0f} ms")
    return took


@pytest.mark.parametrize("count", [1, 10, 100])
@pytest.mark.parametrize(
    ("mode", "reads"), [("ro", True), ("ro", False), ("rw", False), ("rw", True)]
)
def test_begun_logins_delay_no_attach_and_no_detach(
    node: Node, mode: str, reads: bool, count: int
) -> None:
    """Of the host whose name they use, and of the volume's other hosts."""
    node.apply(a="rw", b=mode, c="ro")
    a = node.login("a")
    if reads:
        node.login("b")
    with begun(node, "b", count):
        took = [
            _timed("detach b", lambda: node.apply(only="b", a="rw", c="ro")),
            _timed("attach d", lambda: node.apply(only="d", a="rw", c="ro", d="rw")),
            _timed("detach c", lambda: node.apply(only="c", a="rw", d="rw")),
            _timed("detach d", lambda: node.apply(only="d", a="rw")),
            _timed("attach b", lambda: node.apply(only="b", a="rw", b="ro")),
            _timed("detach b", lambda: node.apply(only="b", a="rw")),
            _timed("apply all", lambda: node.apply(a="rw")),
        ]
        assert node.live() == {"a": "rw"}
        a.write(0, ONE)
    assert max(took) < _SECONDS, took
    until(lambda: node.apply(a="rw") == () and not node.acl("b").exists())


@pytest.mark.parametrize("mode", ["ro", "none"])
def test_a_begun_login_delays_no_writer_that_may_reserve(node: Node, mode: str) -> None:
    """Such hosts share a LUN. That nobody has more sessions proves that all landed."""
    node.reservations = True
    node.apply(a="rw", b="rw", c="ro")
    a, b = node.login("a"), node.login("b")
    b.write(0, ONE)
    with begun(node, "b", 1):
        left = {"b": "ro"} if mode == "ro" else {}
        took = _timed("close b", lambda: node.apply(only="b", a="rw", c="ro", **left))
        took += _timed("detach c", lambda: node.apply(only="c", a="rw", **left))
    assert took < _SECONDS
    assert node.live() == {"a": "rw", **left}
    assert node.on_disk(0) == ONE
    a.write(0, ONE)
    node.apply(only="b", a="rw", b="rw")
    node.login("b").write(0, ONE)


def test_few_acls_stay_beside_a_connection_that_never_logs_in(node: Node) -> None:
    """However long it is kept open, and however many hosts come and go."""
    hosts = [f"h{number}" for number in range(100)]
    address, _, port = PORTAL.rpartition(":")
    node.apply(a="rw")
    a = node.login("a")
    with socket.create_connection((address, int(port))):
        node.apply(a="rw", **dict.fromkeys(hosts, "ro"))
        node.apply(only=hosts, a="rw")
        assert _timed("apply all", lambda: node.apply(a="rw")) < _SECONDS
        assert len(list((node.group / "acls").iterdir())) == 1 + 64
        a.write(0, ONE)
    until(lambda: node.apply(a="rw") == () and not node.acl(hosts[0]).exists())
    until(lambda: node.apply(a="rw") == () and not node.acl(hosts[-1]).exists())


def test_a_closed_acl_lets_its_host_in_again_only_as_attached(node: Node) -> None:
    """It stays while the host is not attached, and refuses its former secret."""
    old, new = Auth("b", "first-secret-1"), Auth("b", "second-secret-2")
    node.apply(a="rw")
    _attach(node, "rw", old)
    node.login("b", old).logout()
    assert node.apply(only="b", a="rw") == (f"{initiator('b')} closed",)
    assert node.apply(only="b", a="rw") == ()
    assert node.acl("b").exists()
    assert refused(node, "b", old)
    assert refused(node, "b")
    _attach(node, "ro", new)
    assert refused(node, "b", old)
    assert refused(node, "b")
    assert protected(node.login("b", new).write, 0, ONE)
    assert node.live() == {"a": "rw", "b": "ro"}


def _attach(node: Node, mode: str, auth: Auth) -> None:
    hosts = (node.connector("a", "rw"), node.connector("b", mode, auth))
    node.driver.apply(Export(node.id, node.disk, hosts), only={initiator("b")})


def test_a_session_that_comes_late_is_ended(node: Node) -> None:
    """A login that had passed CHAP may become a session of a closed ACL."""
    node.apply(a="rw", b="ro")
    a = node.login("a")
    for only in ("b", None):
        node.apply(only="b", a="rw", b="ro")
        node.apply(only="b", a="rw")
        (node.acl("b") / "attrib/authentication").write_text("0")
        node.login("b")
        (node.acl("b") / "attrib/authentication").write_text("1")
        assert f"{initiator('b')} closed" in node.apply(only=only, a="rw")
        info = node.acl("b") / "info"
        assert not info.exists() or info.read_text().startswith("No active")
    a.write(0, ONE)
