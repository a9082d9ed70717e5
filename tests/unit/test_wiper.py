# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Deleted disks are wiped in the background."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.model.operator_records import WipeState
from lunshare.agent.model.records import NewVolume, Page
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import CTX, Node, node_fixture
from tests.stands.waiting import until

MIB = 1024**2
WIPED = "fake_wipe = true\nwipe_step = 256\n"
FAST = f"{WIPED}wipe_rate = 0\n"
# One step, and then nothing for four minutes.
SLOW = f"{WIPED}wipe_rate = 1\n"
EVERY = Page(None, 100)
BROKEN = CommandFailed(("blkdiscard",), 1, "Input/output error")


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    fake_storage.reset()


node = node_fixture(section=FAST, backends="one,two")


def deleted(node: Node, count: int = 1) -> None:
    """Volumes that were created and deleted; their rows are marked deleted."""
    made = [node.services.volumes.create(CTX, NewVolume(1)) for _ in range(count)]
    for volume in made:
        node.services.volumes.delete(CTX, volume.id)
    until(lambda: not node.services.volumes.list(CTX, EVERY))


def left(node: Node) -> list[WipeState]:
    return node.services.wiper.list(CTX)


def test_a_deleted_volume_is_wiped_at_once(node: Node) -> None:
    node.services.wiper.start()
    deleted(node, 3)
    until(lambda: left(node) == [])


def test_the_old_disk_of_a_migration_is_wiped_at_once(node: Node) -> None:
    node.services.wiper.start()
    volume = node.services.volumes.create(CTX, NewVolume(1))
    waiting = {"one": "two", "two": "one"}[volume.backend]
    host = node.services.node.host_of(waiting)
    node.services.migrator.migrate(CTX, volume.id, host)
    left_one = fake_storage.storage(volume.backend)
    until(lambda: volume.id not in left_one.disks)
    until(lambda: left(node) == [])


def test_disks_left_by_an_earlier_process_are_wiped_at_the_start(node: Node) -> None:
    deleted(node)
    assert len(left(node)) == 1
    node.close()
    second = Node(node.path, section=FAST, backends="one,two").start()
    second.services.wiper.start()
    until(lambda: left(second) == [])
    second.close()


def test_a_wipe_does_not_delay_another_backend(node: Node) -> None:
    with node.driver("one").failures.hold("wipe.before") as gate:
        node.services.wiper.start()
        deleted(node, 4)
        assert {row.backend for row in left(node)} >= {"one"}
        assert gate.reached.wait(10)
        until(lambda: {row.backend for row in left(node)} == {"one"})
        gate.open.set()
    until(lambda: left(node) == [])


def test_a_wipe_is_not_faster_than_its_rate_and_stops_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path, section=SLOW).start()
    node.services.wiper.start()
    deleted(node)
    until(lambda: [row.percent for row in left(node)] == [25])
    node.services.wiper.stop()
    # The next step is four minutes away.
    assert not any(thread.is_alive() for thread in node.services.wiper._threads)
    node.close()
    second = Node(tmp_path, section=SLOW).start()
    (row,) = left(second)
    assert (row.backend, row.size, row.left) == ("fake", GIB, GIB - 256 * MIB)
    second.close()


def test_a_disk_that_cannot_be_wiped_is_retried(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    deleted(node, 2)
    before = left(node)
    with node.driver("one").failures.fail("wipe.before", BROKEN):
        for name in ("one", "two"):
            node.services.wiper.wipe_disks(name)
    assert "wipe failed: disk=" in caplog.text
    assert left(node) == [row for row in before if row.backend == "one"]
    node.services.wiper.wipe_disks("one")
    assert left(node) == []


def test_the_log_shows_the_progress_of_a_wipe(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    deleted(node)
    node.services.wiper.wipe_disks("one")
    node.services.wiper.wipe_disks("two")
    lines = [r.getMessage() for r in caplog.records if "wip" in r.getMessage()]
    assert lines[0].endswith(f"size={GIB} left={GIB}")
    assert [line.rpartition("=")[2] for line in lines[1:-1]] == ["25", "50", "75"]
    assert "disk wiped: disk=" in lines[-1]


def test_clients_see_the_progress_of_a_wipe(tmp_path: Path) -> None:
    node = Node(tmp_path, section=FAST).start()
    api = Api(node.assembly.app)
    assert api("GET", "/lunshare/wipes") == {"wipes": []}
    deleted(node)
    (shown,) = api("GET", "/lunshare/wipes")["wipes"]
    assert shown.pop("name").startswith("deleted-")
    assert shown == {"backend": "fake", "size": GIB, "left": GIB, "percent": 0}
    node.close()
