# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Drivers are found by the names that packages give them."""

from __future__ import annotations

from collections.abc import Callable
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from lunshare.drivers import registry
from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.targets.fake import FakeTarget


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Install a package that has one driver, as pip would leave it."""

    def put(name: str, where: str) -> None:
        info = tmp_path / "foreign-1.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text("Name: foreign\nVersion: 1\n")
        text = f"[lunshare.drivers]\n{name} = {where}\n"
        info.joinpath("entry_points.txt").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        # stevedore caches entry points for the life of the process.
        monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})

    return put


def test_built_in_drivers_are_known():
    assert registry.volume_driver("fake") is FakeVolumes
    assert registry.volume_driver("lvm") is LvmVolumes
    assert registry.target_driver("fake") is FakeTarget
    assert {"fake", "lvm"} <= set(registry.driver_names(registry.VOLUMES))
    assert {"fake", "lio"} <= set(registry.driver_names(registry.TARGETS))


@pytest.mark.parametrize(
    ("group", "contract"),
    [(registry.VOLUMES, VolumeDriver), (registry.TARGETS, TargetDriver)],
)
def test_every_driver_of_the_package_can_be_imported(group, contract):
    setup = ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    lines = setup["options.entry_points"][group].split("\n")
    named = dict(line.split(" = ") for line in lines if line)
    assert named.keys() >= {"fake", "nfs"}
    for name, value in named.items():
        found = metadata.EntryPoint(name, value, group).load()
        assert issubclass(found, contract)


@pytest.mark.parametrize("find", [registry.volume_driver, registry.target_driver])
def test_error_for_an_unknown_driver_lists_the_known_ones(find):
    with pytest.raises(Misconfigured, match=r"'zfs' .* choose one of: .*fake"):
        find("zfs")


def test_driver_of_another_package_is_found(install):
    install("foreign", "lunshare.drivers.fake:FakeVolumes")
    assert registry.volume_driver("foreign") is FakeVolumes
    assert "foreign" in registry.driver_names(registry.VOLUMES)


def test_error_for_a_failed_driver_import_gives_the_reason(install):
    install("broken", "not_installed_anywhere:Driver")
    with pytest.raises(Misconfigured, match="No module named 'not_installed_anywhere'"):
        registry.volume_driver("broken")


def test_class_that_is_not_a_driver_is_refused(install):
    install("wrong", "lunshare.drivers.targets.fake:FakeTarget")
    with pytest.raises(Misconfigured, match="is not a VolumeDriver"):
        registry.volume_driver("wrong")
