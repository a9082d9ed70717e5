# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a person changes in a live target is found, classified and put right."""

from __future__ import annotations

import os

import pytest

from lunshare.drivers.drifts import DriftKind
from lunshare.drivers.values import Auth, Export
from tests.system import live_changes
from tests.system.lio_checks import ONE, protected, refused
from tests.system.lio_hosts import Session
from tests.system.lio_node import Node, initiator
from tests.system.live_changes import CHANGES, Hosts

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

KEYS = {host: Auth(f"user-{host}", f"secret-of-{host}") for host in "ab"}


def export(node: Node) -> Export:
    """A writes, b reads, each with its own secret."""
    connectors = (
        node.connector("a", "rw", KEYS["a"]),
        node.connector("b", "ro", KEYS["b"]),
    )
    return Export(node.id, node.disk, connectors)


def hosts(node: Node) -> Hosts:
    """They, and c, which has no attachment."""
    return Hosts(node.group, *map(initiator, "abc"))


def kinds(node: Node) -> set[DriftKind]:
    """What is found."""
    return {drift.kind for drift in node.driver.compare(export(node))}


def logins(node: Node) -> tuple[Session, Session]:
    """Sessions of the writer and the reader."""
    return node.login("a", KEYS["a"]), node.login("b", KEYS["b"])


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_by_hand_is_found_and_put_right(node: Node, name: str) -> None:
    change, kind = CHANGES[name]
    node.driver.apply(export(node))
    assert node.driver.compare(export(node)) == ()
    change(hosts(node))
    found = node.driver.compare(export(node))
    assert kind in {drift.kind for drift in found}, found
    assert all(each.password not in str(found) for each in KEYS.values())
    assert node.driver.compare(export(node)) == found, "it changes nothing"
    assert node.driver.apply(export(node))
    assert node.driver.compare(export(node)) == ()
    a, b = logins(node)
    a.write(0, ONE)
    assert b.read(0) == ONE
    assert protected(b.write, 0, ONE)
    assert refused(node, "c")


def test_a_correct_target_has_no_drift_while_its_hosts_work(node: Node) -> None:
    node.driver.apply(export(node))
    a, b = logins(node)
    a.write(0, ONE)
    assert b.read(0) == ONE
    assert node.driver.compare(export(node)) == ()
    assert a.alive
    assert b.alive
    node.driver.remove(node.id)
    assert kinds(node) == {DriftKind.NARROWER, DriftKind.TARGET}
    assert node.driver.compare(Export(node.id)) == ()


def test_what_no_row_wants_is_found(node: Node) -> None:
    node.driver.apply(export(node))
    found = node.driver.compare(Export(node.id))
    assert {drift.kind for drift in found} == {DriftKind.WIDER, DriftKind.TARGET}
    assert {drift.initiator for drift in found} == {*map(initiator, "ab"), None}


def test_foreign_exports_of_the_disk_are_reported_and_stay(node: Node) -> None:
    node.driver.apply(export(node))
    target = live_changes.add_foreign_target(hosts(node), f"{node.iqn}.theirs")
    second = node.group / "lun/lun_5"
    second.mkdir()
    try:
        found = node.driver.compare(export(node))
        assert {drift.kind for drift in found} == {DriftKind.FOREIGN}
        assert any(target.name in drift.what for drift in found)
        assert any("lun/lun_5" in drift.what for drift in found)
        assert node.driver.apply(export(node)) == ()
        assert target.exists()
        assert second.exists()
    finally:
        live_changes.remove_foreign_target(target)
        os.rmdir(second)
    assert node.driver.compare(export(node)) == ()


def test_what_lets_hosts_in_is_closed_before_a_hanging_access(node: Node) -> None:
    """The end of a session may wait for its disk; no attribute waits for that."""
    node.driver.apply(export(node))
    a, _ = logins(node)
    (node.group / "attrib/authentication").write_text("0")
    changes = node.driver.apply(Export(node.id, node.disk, export(node).connectors[1:]))
    assert changes[0] == "authentication set to 1"
    assert any("closed" in change for change in changes[1:])
    assert not a.alive
