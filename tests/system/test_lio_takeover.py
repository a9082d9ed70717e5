# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets of Cinder's LVM driver, taken over on a real kernel with live sessions."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.values import Export, Portal
from lunshare.helper.lio.target_reads import TargetReads
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_verbs import TargetVerbs
from tests.stands.waiting import until
from tests.system import cinder_export
from tests.system.cinder_export import AUTH, session, taking
from tests.system.dying_apply import is_killed
from tests.system.lio_checks import ONE, TWO, refused
from tests.system.lio_hosts import Refused, Session
from tests.system.lio_node import (
    CONFIGFS,
    PORT,
    PREFIX,
    Later,
    Node,
    hanging,
    initiator,
)

# rtslib asks pyudev for the size of a device in an old way.
pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:Will be removed in 1.0:DeprecationWarning"),
]
pytest_plugins = ["tests.system.lio_fixtures"]

_SHOTS, _WORKERS, _TURNS = 24, 6, 8
_PORTALS = (Portal("127.0.0.1", PORT),)


@pytest.fixture
def taken(node: Node) -> Iterator[Node]:
    """A volume that Cinder exports to hosts a and b."""
    cinder_export.export(node, "a", "b")
    try:
        yield node
    finally:
        for each in node._sessions:
            each.close()
        cinder_export.remove(node)
        taking().remove(node.id, 20)


def wanted(node: Node, **modes: str) -> Export:
    """Each host keeps the secret that Cinder has told it."""
    found = node.export(**modes)
    hosts = tuple(replace(each, auth=AUTH) for each in found.connectors)
    return replace(found, connectors=hosts)


def apply(
    node: Node,
    only: str | None = None,
    lio: TargetVerbs | None = None,
    seconds: float = 20,
    **modes: str,
) -> list[str]:
    names = None if only is None else tuple(initiator(host) for host in only)
    export = wanted(node, **modes)
    return (lio or taking()).apply(Apply(export, _PORTALS, names), seconds)


def need_apart(node: Node, a: Session) -> None:
    """The host a writes, and b reads and cannot write."""
    a.write(8, TWO)
    b = node.login("b", AUTH)
    assert b.read(8) == TWO
    assert b.write_protected
    with pytest.raises(Refused):
        b.write(0, ONE)
    assert b.serial == a.serial
    b.logout()


def test_takeover_does_not_disturb_writer_and_reader_cannot_write(taken: Node) -> None:
    a, b = taken.login("a", AUTH), taken.login("b", AUTH)
    before, serial = session(taken, "a"), a.serial
    b.write(0, ONE)
    apply(taken, a="rw", b="ro")
    assert session(taken, "a") == before
    assert a.serial == serial
    assert not b.alive
    need_apart(taken, a)
    assert (taken.group / "param/ImmediateData").read_text().strip() == "No"
    assert apply(taken, a="rw", b="ro") == []


@pytest.mark.parametrize("host", ["b", "c"])
def test_new_reader_is_read_only_before_the_takeover_is_complete(
    taken: Node, host: str
) -> None:
    """A new mapped LUN of Cinder's target is writable (prod_mode_write_protect 0).

    And its hosts may send data with a command (ImmediateData). The attach of one host
    may come first: the apply of all fails while one of them has no secret, or hangs.
    """
    asked = Apply(wanted(taken, **{host: "ro"}), _PORTALS, (initiator(host),))
    taking().apply(asked, 20)
    assert (taken.acl(host) / "lun_0/write_protect").read_text().strip() == "1"
    assert (taken.group / "param/ImmediateData").read_text().strip() == "No"
    reader = taken.login(host, AUTH)
    assert reader.write_protected
    with pytest.raises(Refused):
        reader.write(0, ONE)


def test_next_apply_completes_a_takeover_killed_at_any_line(node: Node) -> None:
    """The writer's session is the same afterwards."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chosen, most, shots = random.Random(seed), 1, 0
    with exported(node) as a:
        while killed(node, most * 2):
            most *= 2
        a.write(0, ONE)
    for turn in range(_SHOTS):
        with exported(node) as a:
            before, step = session(node, "a"), 2 * most // _SHOTS
            shots += killed(node, 1 + turn * step + chosen.randrange(step))
            a.write(0, ONE)
            apply(node, a="rw", b="ro")
            assert session(node, "a") == before, (seed, turn)
            need_apart(node, a)
            assert apply(node, a="rw", b="ro") == [], (seed, turn)
    assert shots > _SHOTS // 4


def test_next_remove_completes_one_killed_at_any_line(node: Node) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chosen, most, shots = random.Random(seed), 1, 0
    while _removal_is_killed(node, most * 2):
        most *= 2
    for turn in range(_SHOTS):
        step = 2 * most // _SHOTS
        line = 1 + turn * step + chosen.randrange(step)
        shots += _removal_is_killed(node, line)
    assert shots > _SHOTS // 4


def _removal_is_killed(node: Node, line: int) -> bool:
    """Kill the removal of a volume that was taken over, and remove it again."""
    with exported(node):
        apply(node, a="rw", b="ro")
        killed = is_killed(line, _Removing, Apply(wanted(node), _PORTALS))
        taking().remove(node.id, 20)
        assert not (CONFIGFS / "iscsi" / node.iqn).exists(), line
        assert not list((CONFIGFS / "core").glob(f"*/*{node.id}*")), line
    return killed


class _Removing(TargetVerbs):
    """Removes instead."""

    def __init__(self) -> None:
        super().__init__(PREFIX, lambda group: True)

    def apply(self, wanted: Apply, seconds: float, *_: object) -> list[str]:
        return self.remove(wanted.export.volume_id, seconds)


@contextlib.contextmanager
def exported(node: Node) -> Iterator[Session]:
    """Exported by Cinder to hosts a and b; a is logged in."""
    cinder_export.export(node, "a", "b")
    try:
        portal = f"127.0.0.1:{PORT}"
        with contextlib.closing(Session(initiator("a"), node.iqn, portal, AUTH)) as a:
            yield a
    finally:
        taking().remove(node.id, 20)


def killed(node: Node, line: int) -> bool:
    return is_killed(line, taking, Apply(wanted(node, a="rw", b="ro"), _PORTALS))


def test_takeover_waits_for_a_write_in_progress(taken: Node) -> None:
    """b writes to a disk that hangs, and is to be read-only."""
    a, b = taken.login("a", AUTH), taken.login("b", AUTH)
    before, passed = session(taken, "a"), cinder_export.commands(taken)
    with hanging(taken):
        write = Later(b.write, 0, ONE)
        until(lambda: cinder_export.commands(taken) > passed)
        with pytest.raises(DeadlineExceeded):
            apply(taken, seconds=1, a="rw", b="ro")
        assert taken.live().get("b") != "rw"
    write.join()
    apply(taken, a="rw", b="ro")
    assert session(taken, "a") == before
    need_apart(taken, a)


def test_many_changes_at_once_leave_the_last_one(taken: Node) -> None:
    a, lio = taken.login("a", AUTH), taking()
    before = session(taken, "a")
    apply(taken, lio=lio, a="rw", b="ro")

    def change(number: int) -> None:
        host, mode = f"h{number}", ("rw", "ro")[number % 2]
        for _ in range(_TURNS):
            present = {"a": "rw", "b": "ro", host: mode}
            names = (initiator(host),)
            lio.apply(Apply(wanted(taken, **present), _PORTALS, names), 60)
            lio.apply(Apply(wanted(taken, a="rw", b="ro"), _PORTALS, names), 60)

    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(change, range(_WORKERS)))
    assert apply(taken, lio=lio, a="rw", b="ro") == []
    assert session(taken, "a") == before
    need_apart(taken, a)


# what is not taken over


def test_target_of_another_group_is_left_alone(taken: Node) -> None:
    a = taken.login("a", AUTH)
    other = taking("another-group")
    for change in (
        lambda: apply(taken, lio=other, b="rw"),
        lambda: apply(taken, lio=other, only="a"),
        lambda: other.remove(taken.id, 20),
    ):
        with pytest.raises(TargetFailed, match="another program has created"):
            change()
    a.write(0, ONE)
    reads = TargetReads(PREFIX, lambda name: name == "another-group")
    assert reads.observe(5) == []
    assert reads.live(taken.id, 5) is None


@pytest.mark.parametrize("only", [None, "a"])
def test_session_without_an_acl_ends_at_the_takeover(
    taken: Node, only: str | None
) -> None:
    """An administrator has let every host in. One that has an attachment, too."""
    _let_everybody_in(taken.group)
    a = taken.login("a", AUTH)
    before = session(taken, "a")
    strangers = [taken.login("stranger"), taken.login("c")]
    for stranger in strangers:
        stranger.write(0, ONE)
    changed = apply(taken, only=only, a="rw", c="ro")
    assert f"{initiator('stranger')} closed, which had no ACL" in changed
    assert not any(stranger.alive for stranger in strangers)
    assert refused(taken, "stranger")
    assert session(taken, "a") == before
    a.write(8, TWO)
    if not only:
        c = taken.login("c", AUTH)
        assert c.read(8) == TWO
        assert c.write_protected


def test_session_without_an_acl_ends_at_the_next_start(node: Node) -> None:
    """The same with a target of lunshare."""
    node.apply(a="rw")
    _let_everybody_in(node.group)
    a, stranger = node.login("a"), node.login("stranger")
    before = session(node, "a")
    stranger.write(0, ONE)
    node.apply(a="rw")
    assert not stranger.alive
    assert session(node, "a") == before
    a.write(0, TWO)
    assert node.live() == {"a": "rw"}


def _let_everybody_in(group: Path) -> None:
    for name, value in {
        "generate_node_acls": "1",
        "authentication": "0",
        "demo_mode_write_protect": "0",
    }.items():
        (group / "attrib" / name).write_text(value)


def test_backstore_of_two_targets_stays_with_the_other_one(taken: Node) -> None:
    """An administrator has exported the disk a second time."""
    other = CONFIGFS / "iscsi" / "iqn.2003-01.com.example:second"
    (other / "tpgt_1/lun/lun_0").mkdir(parents=True)
    link = other / "tpgt_1/lun/lun_0/disk"
    (store,) = (CONFIGFS / "core").glob(f"iblock_*/{taken.iqn}")
    link.symlink_to(store)
    try:
        with pytest.raises(TargetFailed, match="busy"):
            taking().remove(taken.id, 20)
        assert store.exists()
        assert not (CONFIGFS / "iscsi" / taken.iqn).exists()
    finally:
        link.unlink()
        for path in ("tpgt_1/lun/lun_0", "tpgt_1", ""):
            (other / path).rmdir()


# the option is switched off again


def test_new_export_stays_when_the_option_is_off_again(node: Node) -> None:
    apply(node, a="rw", b="ro")
    a = node.login("a", AUTH)
    before = session(node, "a")
    (store,) = (CONFIGFS / "core").glob(f"iblock_*/*{node.id}")
    assert store.name == node.iqn  # where Cinder's driver would find it
    off = TargetVerbs(PREFIX)
    assert apply(node, lio=off, a="rw", b="ro") == []
    assert session(node, "a") == before
    need_apart(node, a)
    a.logout()
    off.remove(node.id, 20)
    assert not list(Path(CONFIGFS / "core").glob(f"*/*{node.id}*"))
