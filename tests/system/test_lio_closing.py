# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LIO in trouble: incomplete states, and closing while writes are in progress."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lunshare.drivers.errors import DeadlineExceeded
from lunshare.helper.lio.backstores import Role, _numbers, name_of
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lio_checks import ONE, TWO, Make, protected, refused
from tests.system.lio_node import (
    CONFIGFS,
    PORT,
    HelperProcess,
    Later,
    Node,
    hanging,
    initiator,
    target,
)
from tests.system.raw_iscsi import UnfinishedLogin

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

# Incomplete states, as a kill -9 leaves them


def _half_backstore(node: Node) -> None:
    """A backstore that is not enabled, and another without its serial."""
    node.driver.remove(node.id)
    number = next(iter(_numbers(node.id, Role.WRITERS)))
    path = CONFIGFS / f"core/iblock_{number}" / name_of(node.id, Role.WRITERS)
    path.mkdir(parents=True)
    (path / "control").write_text(f"udev_path={node.disk.path}")


def _half_enabled_backstore(node: Node) -> None:
    _half_backstore(node)
    (path,) = CONFIGFS.glob(f"core/*/{node.name}")
    (path / "enable").write_text("1")


def _half_target(node: Node) -> None:
    node.driver.remove(node.id)
    node.group.mkdir(parents=True)


def _disabled(node: Node) -> None:
    (node.group / "enable").write_text("0")


def _no_lun(node: Node) -> None:
    for host in "ab":
        _no_mapping(node, host)
    (node.group / "lun/lun_0" / node.name).unlink()


def _no_mapping(node: Node, host: str = "a") -> None:
    _no_link(node, host)
    (node.acl(host) / "lun_0").rmdir()


def _no_link(node: Node, host: str = "a") -> None:
    (link,) = (
        each for each in (node.acl(host) / "lun_0").iterdir() if each.is_symlink()
    )
    link.unlink()


def _wide_open(node: Node) -> None:
    (node.group / "attrib/generate_node_acls").write_text("1")
    (node.group / "attrib/demo_mode_write_protect").write_text("0")
    (node.acl("b") / "lun_0/write_protect").write_text("0")


def _second_way(node: Node) -> None:
    extra = node.acl("b") / "lun_7"
    extra.mkdir()
    (extra / "link").symlink_to(node.group / "lun/lun_0")
    (extra / "write_protect").write_text("0")


def _other_path(node: Node) -> None:
    (node.backstore() / "udev_path").write_text("/dev/lunshare/other")


@pytest.mark.parametrize(
    "spoil",
    [
        _half_backstore,
        _half_enabled_backstore,
        _half_target,
        _disabled,
        _no_lun,
        _no_mapping,
        _no_link,
        _wide_open,
        _second_way,
        _other_path,
    ],
)
def test_apply_repairs_every_incomplete_state(
    node: Node, spoil: Callable[[Node], None]
) -> None:
    node.apply(a="rw", b="ro")
    spoil(node)
    assert node.apply(a="rw", b="ro")
    assert node.live() == {"a": "rw", "b": "ro"}
    node.login("a").write(0, ONE)
    assert protected(node.login("b").write, 0, TWO)
    assert refused(node, "c")
    assert not (node.acl("b") / "lun_7").exists()
    assert node.login("a").serial == node.id
    assert node.apply(a="rw", b="ro") == ()


def test_attach_does_not_enable_what_a_killed_remove_left(node: Node) -> None:
    node.apply(a="rw", b="rw")
    _disabled(node)
    node.apply(only="c", c="ro")
    assert node.live() == {"c": "ro"}


# Closing while writes are in progress, on a disk that hangs


def _write_in_progress(node: Node, host: str) -> Later:
    """Start a write that hangs below the target; the disk stays suspended."""
    session = node.login(host)
    before = node.received(host)
    node.suspend()
    write = Later(session.write, 0, ONE)
    until(lambda: node.received(host) > before)
    return write


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_closing_waits_for_running_writes(
    helper: HelperProcess, make: Make, wanted: dict[str, str]
) -> None:
    node, other = make(), make()
    node.apply(a="rw")
    other.apply(a="rw")
    _write_in_progress(node, "a")
    with hanging(node):
        hasty = target(helper, deadline=1.0)
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted), only={initiator("a")})
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted), only={initiator("a")})
        assert node.live().get("a") != "rw"
        assert other.apply(a="rw", b="rw")
        other.driver.remove(other.id)
        other.apply(b="ro")
        assert other.live() == {"b": "ro"}
        again = Later(node.driver.apply, node.export(**wanted), {initiator("a")})
        assert not again.done
    assert again.join() is None
    assert node.on_disk(0) == ONE
    assert node.live() == wanted
    assert refused(node, "a") == (not wanted)


# An emulated processor needs 1.3 s; a login that has begun, 15 s and more.
_REMOVE_SECONDS = 5.0

_DYING = """
import sys
from tests.system.lio_hosts import BLOCK, Session
session = Session(*sys.argv[1:])
print("in", flush=True)
sys.stdin.readline()
session.write(0, b"1" * BLOCK)
"""


def asleep(pid: int) -> bool:
    """Whether a process sleeps: proc_pid_stat(5), the third field."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_closing_waits_for_writes_of_a_dead_host(node: Node) -> None:
    node.apply(a="rw", b="rw")
    portal = f"127.0.0.1:{PORT}"
    line = [sys.executable, "-c", _DYING, initiator("a"), node.iqn, portal]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        assert host.stdout.readline() == "in\n"
        before = node.received("a")
        with hanging(node):
            host.stdin.write("go\n")
            host.stdin.flush()
            until(lambda: node.received("a") > before)
            # libiscsi sends a command and its data in two calls, and then waits.
            until(lambda: asleep(host.pid))
            host.kill()
            host.wait()
            closing = Later(node.apply, "a")
            with pytest.raises(DeadlineExceeded):
                target(node.helper, deadline=1.0).apply(node.export(), {initiator("a")})
            assert not closing.done
        assert closing.join() is None
    assert node.on_disk(0) == ONE
    assert node.live() == {"b": "rw"}


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_closing_waits_for_writes_of_a_host_that_logs_out(
    node: Node, make: Make, wanted: dict[str, str]
) -> None:
    node.apply(a="rw", b="rw")
    other = make()
    session, before = node.login("a"), node.received("a")
    info = node.acl("a") / "info"
    with hanging(node):
        Later(session.write, 0, ONE)
        until(lambda: node.received("a") > before)
        session.begin_logout()
        until(lambda: "CONN_STATE_LOGGED_IN" not in info.read_text())
        hasty = target(node.helper, deadline=1.0)
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                hasty.apply(node.export(**wanted), {initiator("a")})
        # A closing that waits does not block other hosts.
        assert other.apply(b="ro")
    node.apply(only="a", **wanted)
    assert node.on_disk(0) == ONE
    assert node.live() == {"b": "rw", **wanted}


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_closing_waits_for_a_session_that_a_later_one_hides(
    node: Node, make: Make, wanted: dict[str, str]
) -> None:
    """One path of a host logs out with a write in progress, the other one is idle.

    The kernel shows the latest session of a host, and none when that is ended: the host
    was read-only, as it was answered, and its write was still to land.
    """
    node.apply(a="rw", b="rw")
    other = make()
    first, before = node.login("a"), node.received("a")
    info = node.acl("a") / "info"
    with hanging(node):
        write = Later(first.write, 0, ONE)
        until(lambda: node.received("a") > before)
        first.begin_logout()
        until(lambda: "CONN_STATE_LOGGED_IN" not in info.read_text())
        second = node.login("a")
        hasty = target(node.helper, deadline=2.0)
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                hasty.apply(node.export(**wanted), {initiator("a")})
        assert not write.done
        assert not second.alive
        # A closing that waits does not block other volumes.
        assert other.apply(b="ro")
    node.apply(only="a", **wanted)
    assert node.on_disk(0) == ONE
    assert node.live() == {"b": "rw", **wanted}


@pytest.mark.parametrize("wanted", [{}, {"a": "ro"}], ids=["close", "restrict"])
def test_helper_killed_while_closing_waits_again(
    tmp_path: Path, node: Node, wanted: dict[str, str]
) -> None:
    node.apply(a="rw")
    _write_in_progress(node, "a")
    mortal = HelperProcess(tmp_path)
    with hanging(node):
        with pytest.raises(DeadlineExceeded):
            target(mortal, deadline=1.0).apply(node.export(**wanted))
        mortal.kill()
        hasty = target(node.helper, deadline=1.0)
        with pytest.raises(DeadlineExceeded):
            hasty.apply(node.export(**wanted))
        assert "rw" not in node.live().values()
        again = Later(node.driver.apply, node.export(**wanted))
        assert not again.done
    assert again.join() is None
    mortal.wait()
    assert node.on_disk(0) == ONE
    assert node.live() == wanted


def test_remove_waits_for_running_writes(helper: HelperProcess, node: Node) -> None:
    node.apply(a="rw")
    _write_in_progress(node, "a")
    with hanging(node):
        with pytest.raises(DeadlineExceeded):
            target(helper, deadline=1.0).remove(node.id)
        assert refused(node, "a")
    node.driver.remove(node.id)
    assert node.on_disk(0) == ONE
    assert not node.group.exists()
    assert not list(CONFIGFS.glob(f"core/*/{node.name}"))


@pytest.mark.parametrize("hosts", ["a", "abcdefgh"])
def test_a_login_that_has_begun_delays_no_remove(node: Node, hosts: str) -> None:
    """The kernel would wait before it removes the ACL: 15 s in 7.2, for ever in 6.1."""
    node.apply(**dict.fromkeys(hosts, "rw"))
    with contextlib.closing(UnfinishedLogin(initiator("a"), node.iqn, PORTAL)):
        began = time.monotonic()
        node.driver.remove(node.id)
        assert time.monotonic() - began < _REMOVE_SECONDS
        assert not node.backstores()
        assert node.live() == {}
        assert refused(node, "a")
    until(lambda: not node.group.parent.exists(), seconds=30.0)


def test_a_volume_is_exported_again_beside_a_begun_login(node: Node) -> None:
    """Its first attach does not wait for it. Logins do: the target takes one at a time.

    They wait until it ends, see docs/kernel-reports/one-login-at-a-time.md.
    """
    node.apply(a="rw", b="ro")
    with contextlib.closing(UnfinishedLogin(initiator("a"), node.iqn, PORTAL)):
        node.driver.remove(node.id)
        began = time.monotonic()
        node.apply(only="c", c="rw")
        assert time.monotonic() - began < _REMOVE_SECONDS
        assert node.live() == {"c": "rw"}
    node.login("c").write(0, ONE)
    assert refused(node, "a")
    node.apply(c="rw")
    node.login("c").write(0, ONE)
