# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which backend is of this node: only to such a one the driver itself copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.cinder.node_location import location_info, section_of
from lunshare.drivers.lvm import claim

_HERE = "node1@thin#thin"


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text("3" * 32)
    monkeypatch.setattr(claim, "MACHINE_ID", path)
    return path


def target(host: str, location: str) -> dict[str, object]:
    """What Cinder gives to migrate_volume."""
    return {"host": host, "capabilities": {"location_info": location}}


def test_other_backend_of_the_node_is_recognized() -> None:
    assert section_of(_HERE, target("node1@thick#p", location_info("thick"))) == "thick"


def test_cloned_node_with_the_same_machine_id_is_another_node() -> None:
    """Its backends may have the same sections: the copy would stay here, unseen."""
    cloned = target("node2@thick#p", location_info("thick"))
    assert section_of(_HERE, cloned) is None


def test_another_machine_is_another_node(machine_id: Path) -> None:
    there = location_info("thick")
    machine_id.write_text("4" * 32)
    assert section_of(_HERE, target("node1@thick#p", there)) is None


@pytest.mark.parametrize("content", ["", "uninitialized"])
def test_node_without_a_machine_id_recognizes_none(
    machine_id: Path, content: str
) -> None:
    machine_id.write_text(content)
    found = target("node1@thick#p", location_info("thick"))
    assert section_of(_HERE, found) is None


@pytest.mark.parametrize("stats", [None, {}, {"location_info": "LVM:node1:thick"}])
def test_backend_of_another_driver_is_not_recognized(stats: object) -> None:
    found = {"host": "node1@thick#p", "capabilities": stats}
    assert section_of(_HERE, found) is None
