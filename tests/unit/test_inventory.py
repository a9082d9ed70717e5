# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is on the backends is read once, whatever number of them shares a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.service.orphans import inventory
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.targets.lio import LioTarget
from tests.stands.node import Node


def lio(prefix: str) -> LioTarget:
    options = {option.dest: option.default for option in LioTarget.OPTIONS}
    options["target_prefix"] = prefix
    return LioTarget(prefix, options, Helper("/nonexistent"))


def test_targets_with_one_prefix_list_the_same() -> None:
    assert lio("iqn.2026-11.org.a:").listing == lio("iqn.2026-11.org.A:").listing
    assert lio("iqn.2026-11.org.a:").listing != lio("iqn.2026-11.org.b:").listing


@pytest.mark.parametrize(("shared", "reads"), [(True, 1), (False, 2)])
def test_the_exports_of_a_target_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, reads: int
) -> None:
    node = Node(tmp_path, backends="one,two").start()
    if shared:
        monkeypatch.setattr(FakeTarget, "listing", "one")
    points: list[str] = []
    for name in ("one", "two"):
        node.target(name).failures.watch(points.append)
    inventory.read(node.assembly.database, node.assembly.backends)
    assert points.count("observe") == reads
    node.close()
