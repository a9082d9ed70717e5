# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The LUN of each host that writes (docs/decisions/0048)."""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import partial
from pathlib import Path

import pytest

from lunshare.helper.lio.target_tree import Target
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import (
    ONE,
    TWO,
    lose,
    refused,
    reservation_keys,
    reserve_out,
)
from tests.system.lio_node import PREFIX, Later, Node, hanging, initiator
from tests.system.raw_iscsi import RawSession

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]


def test_each_host_that_writes_has_its_own(node: Node) -> None:
    node.apply(a="rw", b="rw", c="ro")
    assert len({_lun(node, host) for host in "abc"} - {"lun_0"}) == 3
    assert _lun(node, "c") == "lun_1"
    a = node.login("a")
    a.write(0, ONE)
    node.apply(only="b", a="rw", b="ro", c="ro")
    assert _lun(node, "b") == "lun_1"
    node.apply(only="c", a="rw", b="ro", c="rw")
    assert a.read(0) == node.login("c").read(0) == ONE
    node.apply(only="c", a="rw", b="ro")
    assert _luns(node) == {"lun_0", "lun_1", _lun(node, "a")}
    assert a.alive


def test_a_detach_waits_for_the_writes_of_its_host_alone(node: Node) -> None:
    """The hidden session of the host is alive, and its write hangs."""
    node.apply(a="rw", b="rw", c="rw")
    b = node.login("b")
    sessions = [RawSession(initiator("a"), node.iqn, PORTAL, number=n) for n in (1, 2)]
    before = node.received("a")
    with contextlib.ExitStack() as stack:
        for session in sessions:
            stack.enter_context(contextlib.closing(session))
        with hanging(node):
            write = Later(sessions[1].command, _WRITE, "W", ONE)
            until(lambda: node.received("a") > before)
            detach = Later(partial(node.apply, only="a", b="rw", c="rw"))
            until(lambda: refused(node, "a"))
            assert not detach.done
        assert detach.join() is None
        write.join()
    assert node.on_disk(0) == ONE
    assert b.alive


_WRITE = bytes([0x2A, *bytes(6), 0, 1, 0])


def test_a_host_of_an_older_version_keeps_its_session(node: Node) -> None:
    """It gets its own LUN when it has no session, or is attached again."""
    node.apply(a="rw", b="rw", c="ro")
    for host in "ab":
        _as_an_older_version(node, host)
    a = node.login("a")
    node.apply(only="d", a="rw", b="rw", c="ro", d="rw")
    assert _lun(node, "b") == "lun_0"
    node.apply(a="rw", b="rw", c="ro", d="rw")
    assert (_lun(node, "a"), len(_luns(node))) == ("lun_0", 4)
    a.write(0, ONE)
    assert node.login("b").read(0) == ONE
    assert node.apply(a="rw", b="rw", c="ro", d="rw") == ()
    node.apply(only="a", b="rw", c="ro", d="rw")
    assert refused(node, "a")
    node.apply(only="a", a="rw", b="rw", c="ro", d="rw")
    assert _lun(node, "a") not in ("lun_0", "lun_1")
    assert node.login("a").read(0) == ONE


def test_a_number_that_is_in_use_is_left_alone(node: Node) -> None:
    """Also one that another program has taken meanwhile."""
    target = Target(PREFIX, node.id)
    node.apply(b="rw")
    first, second = itertools.islice(target.own_luns(initiator("a")), 2)
    Path(first).mkdir()
    os.symlink(node.backstore(), f"{first}/theirs")
    node.apply(a="rw", b="rw")
    assert _lun(node, "a") == Path(second).name
    assert os.listdir(first).count("theirs") == 1
    node.apply(only="a", b="rw")
    assert _luns(node) == {"lun_0", _lun(node, "b"), Path(first).name}


def test_what_a_killed_helper_leaves_is_completed(node: Node) -> None:
    """A LUN that nobody has, and a host whose LUN has lost its link."""
    node.apply(a="rw", b="rw")
    unused = Path(next(Target(PREFIX, node.id).own_luns(initiator("x"))))
    unused.mkdir()
    os.symlink(node.backstore(), unused / node.name)
    begun = Path([*Target(PREFIX, node.id).own_luns(initiator("b"))][1])
    begun.mkdir()
    (node.group / "lun" / _lun(node, "a") / node.name).unlink()
    b = node.login("b")
    assert node.apply(only="a", a="rw", b="rw")
    node.login("a").write(0, TWO)
    gone = sorted(f"unused {lun.name} removed" for lun in (unused, begun))
    assert sorted(node.apply(a="rw", b="rw")) == gone
    assert b.read(0) == TWO
    assert node.apply(a="rw", b="rw") == ()


def test_hosts_of_a_volume_with_reservations_share_the_writers_lun(node: Node) -> None:
    """A host that has its own, since none were allowed, keeps it and its key."""
    node.apply(a="rw")
    own = _lun(node, "a")
    node.reservations = True
    node.apply(a="rw", b="rw")
    assert (_lun(node, "a"), _lun(node, "b")) == (own, "lun_0")
    for host in "ab":
        reserve_out(
            node.login(host), 6, bytes(8) + f"writer-{host}".encode(), lasting=True
        )
    lose(node)
    node.apply(a="rw", b="rw")
    assert _luns(node) == {"lun_0"}
    assert reservation_keys(node.login("a")) == {b"writer-a", b"writer-b"}
    node.apply(only="b", a="rw")
    assert reservation_keys(node.login("a")) == {b"writer-a"}


def test_a_host_is_detached_after_reservations_were_allowed(node: Node) -> None:
    node.apply(a="rw", b="rw")
    node.reservations = True
    node.apply(a="rw", b="rw")
    reserve_out(node.login("a"), 6, bytes(8) + b"writer-a", lasting=True)
    node.apply(only="a", b="rw")
    assert refused(node, "a")
    assert reservation_keys(node.login("b")) == set()
    node.apply(only="a", a="rw", b="rw")
    assert _lun(node, "a") == "lun_0"


def _lun(node: Node, host: str) -> str:
    return (node.acl(host) / "lun_0/lun").resolve().name


def _luns(node: Node) -> set[str]:
    return set(os.listdir(node.group / "lun"))


def _as_an_older_version(node: Node, host: str) -> None:
    """Map the writers' LUN to it; its own one is gone."""
    mapped, own = node.acl(host) / "lun_0", node.group / "lun" / _lun(node, host)
    (mapped / "lun").unlink()
    (own / node.name).unlink()
    own.rmdir()
    (mapped / "lun").symlink_to(node.group / "lun/lun_0")
    (mapped / "write_protect").write_text("0")
