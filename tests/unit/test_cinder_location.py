# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which target the driver copies to itself: another backend of this very node.

If Cinder stores a copy on this node as one of another node, it does not find the copy,
and it has deleted the source.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from lunshare.cinder.node_location import location_info, other_section
from lunshare.drivers.lvm import claim


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text("3" * 32)
    monkeypatch.setattr(claim, "MACHINE_ID", path)
    return path


def configured(tmp_path: Path, thin: str = "", thick: str = "") -> cfg.ConfigOpts:
    """The cinder.conf of node1, with these lines of its two backends."""
    file = tmp_path / "cinder.conf"
    file.write_text(f"[DEFAULT]\nhost = node1\n[thin]\n{thin}\n[thick]\n{thick}\n")
    conf = cfg.ConfigOpts()
    conf(args=[], default_config_files=[str(file)], default_config_dirs=[])
    for name in ("my_ip", "host", "state_path"):
        conf.register_opt(cfg.StrOpt(name, default="192.0.2.1"))
    conf.register_opt(cfg.ListOpt("enabled_backends", default=["thin", "thick"]))
    return conf


def target(host: str, location: str) -> dict[str, object]:
    """What Cinder gives to migrate_volume."""
    return {"host": host, "capabilities": {"location_info": location}}


def is_here(conf: cfg.ConfigOpts, host: str, section: str) -> bool:
    """Whether a target with this machine's id is another backend than [thin] here."""
    found = other_section(conf, "thin", target(host, location_info(section)))
    assert found is None or found.name == section
    return found is not None


def test_other_backend_of_the_node_is_a_local_target(tmp_path: Path) -> None:
    assert is_here(configured(tmp_path), "node1@thick#pool", "thick")


def test_other_backend_with_a_host_of_its_own_is_a_local_target(tmp_path: Path) -> None:
    conf = configured(tmp_path, thick="backend_host = storage")
    assert is_here(conf, "storage@thick#pool", "thick")
    assert not is_here(conf, "node1@thick#pool", "thick")


@pytest.mark.parametrize(
    ("thin", "host"), [("", "node2@thick#p"), ("backend_host = X", "X@thick#p")]
)
def test_cloned_node_is_another_node(tmp_path: Path, thin: str, host: str) -> None:
    """It has this machine's id and sections, and may have its backend_host."""
    assert not is_here(configured(tmp_path, thin), host, "thick")


@pytest.mark.parametrize(
    ("host", "section"), [("node1@thin#p", "thin"), ("node1@gone#p", "gone")]
)
def test_same_or_unknown_section_is_not_a_local_target(
    tmp_path: Path, host: str, section: str
) -> None:
    assert not is_here(configured(tmp_path), host, section)


def test_another_machine_is_another_node(tmp_path: Path, machine_id: Path) -> None:
    there = location_info("thick")
    machine_id.write_text("4" * 32)
    found = target("node1@thick#p", there)
    assert other_section(configured(tmp_path), "thin", found) is None


@pytest.mark.parametrize("content", ["", "uninitialized"])
def test_node_without_a_machine_id_recognizes_none(
    tmp_path: Path, machine_id: Path, content: str
) -> None:
    machine_id.write_text(content)
    assert not is_here(configured(tmp_path), "node1@thick#p", "thick")


@pytest.mark.parametrize("stats", [None, {}, {"location_info": "LVM:node1:thick"}])
def test_backend_of_another_driver_is_not_a_local_target(
    tmp_path: Path, stats: object
) -> None:
    found = {"host": "node1@thick#p", "capabilities": stats}
    assert other_section(configured(tmp_path), "thin", found) is None
