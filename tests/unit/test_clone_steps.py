# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a clone asks of the driver."""

from __future__ import annotations

from pathlib import Path

from lunshare.agent.model.records import NewVolume
from tests.stands.node import CTX, Node


def test_a_clone_does_not_look_for_a_disk_that_is_not_there_yet(tmp_path: Path) -> None:
    """With LVM that look was an lvchange that failed: 0.1 s of each clone."""
    node = Node(tmp_path, section="fake_clones_at_once = true").start()
    try:
        source = node.services.volumes.create(CTX, NewVolume(size=1))
        passed: list[str] = []
        node.driver().failures.watch(passed.append)
        new = NewVolume(size=1, source_volid=source.id)
        node.services.volumes.create(CTX, new)
    finally:
        node.close()
    assert passed[:3] == ["clone.before", "clone.half", "clone.after"]
