# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Drivers are found by the names that packages give them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from lunshare.drivers import base, registry
from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.fake.fake_driver import FakeVolumes
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


_BASE = "from lunshare.drivers.base import VolumeDriver\n"
_ABILITIES = "from lunshare.drivers.abilities import VolumeAbilities\n"
#: Drivers of contract 1, which fail at different lines of their import.
_OLD = {
    "ability": f"""{_BASE}{_ABILITIES}
class Old(VolumeDriver):
    CONTRACT = 1
    ABILITIES = VolumeAbilities(shares=True)
""",
    "ability_before_the_number": f"""{_BASE}{_ABILITIES}
class Old(VolumeDriver):
    ABILITIES = VolumeAbilities(shares=True)
    CONTRACT: int = 1
""",
    "no_number": f"""{_BASE}{_ABILITIES}
class Old(VolumeDriver):
    ABILITIES = VolumeAbilities(shares=True)
""",
    "base_class": f"""{_BASE}{_ABILITIES}
class Base(VolumeDriver):
    CONTRACT = 1
    ABILITIES = VolumeAbilities(shares=True)
class Old(Base):
    pass
""",
    "import_name": """from drivers.base import VolumeDriver
class Old(VolumeDriver):
    pass
""",
    "module": """import lunshare.drivers.execute
from lunshare.drivers import base
class Old(base.VolumeDriver):
    pass
""",
    "no_failure": f"""{_BASE}
class Old(VolumeDriver):
    pass
""",
}


@pytest.mark.parametrize("fails_at", _OLD)
def test_driver_of_an_older_contract_is_refused_in_one_sentence(
    install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
):
    monkeypatch.setitem(sys.modules, "drivers", None)
    tmp_path.joinpath(f"old_{fails_at}.py").write_text(_OLD[fails_at])
    install("old", f"old_{fails_at}:Old")
    with pytest.raises(Misconfigured) as caught:
        registry.volume_driver("old")
    assert str(caught.value) == (
        "driver 'old' of lunshare.drivers was written for contract 1, and this lunshare"
        f" has contract {base.CONTRACT}: install a version of its package for contract"
        f" {base.CONTRACT}; CHANGELOG.md has what changed, under"
        f" 'Contract {base.CONTRACT} of drivers'"
    )


def test_older_driver_that_a_package_imports_is_refused_in_one_sentence(
    install, tmp_path: Path
):
    package = tmp_path / "old_package"
    package.mkdir()
    package.joinpath("driver.py").write_text(_OLD["ability"])
    package.joinpath("__init__.py").write_text("from old_package.driver import Old\n")
    install("old", "old_package:Old")
    with pytest.raises(Misconfigured, match=r"written for contract 1, .* contract 2"):
        registry.volume_driver("old")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import lunshare.drivers.execute", "No module named 'lunshare.drivers.exec"),
        ("from drivers.lvm import lines", "No module named 'drivers.lvm'"),
        ("from lunshare.drivers.base import execute", "cannot import name 'execute'"),
    ],
)
def test_driver_that_imports_an_old_private_path_is_refused_in_one_sentence(
    install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
):
    monkeypatch.delitem(sys.modules, "private", raising=False)
    monkeypatch.setitem(sys.modules, "drivers", None)
    tmp_path.joinpath("private.py").write_text(
        f"{line}\n{_BASE}class Private(VolumeDriver):\n    CONTRACT = {base.CONTRACT}\n"
    )
    install("private", "private:Private")
    with pytest.raises(Misconfigured) as caught:
        registry.volume_driver("private")
    first, _, remedy = str(caught.value).rpartition(": ")
    assert "'private' of lunshare.drivers imports a path of lunshare that this" in first
    assert reason in first
    assert remedy.startswith("install a version of its package for this lunshare; docs")


def test_error_for_a_driver_of_a_newer_contract_asks_for_a_newer_lunshare(
    install, tmp_path: Path
):
    tmp_path.joinpath("newer.py").write_text(
        f"{_BASE}{_ABILITIES}\nclass Newer(VolumeDriver):\n    CONTRACT = 3\n"
        "    ABILITIES = VolumeAbilities(flies=True)\n"
    )
    install("newer", "newer:Newer")
    with pytest.raises(Misconfigured, match=r"contract 3, .*: upgrade lunshare"):
        registry.volume_driver("newer")


@pytest.mark.parametrize(
    "line",
    ["CONTRACT = 2", "CONTRACT = 2; import not_installed_anywhere", "CONTRACT = int()"],
)
def test_error_for_a_failed_import_of_a_current_driver_gives_the_reason(
    install, tmp_path: Path, line: str
):
    name = f"current_{len(line)}"
    tmp_path.joinpath(f"{name}.py").write_text(
        "from lunshare.drivers.abilities import VolumeAbilities\n"
        f"{_BASE}class Current(VolumeDriver):\n    {line}\n"
        "    ABILITIES = VolumeAbilities(flies=True)\n"
    )
    install("current", f"{name}:Current")
    with pytest.raises(
        Misconfigured, match=r"cannot be imported .*(flies|not_install)"
    ):
        registry.volume_driver("current")


def test_changelog_has_the_section_that_the_refusal_names():
    text = Path(__file__).parents[2].joinpath("CHANGELOG.md").read_text()
    assert f"#### {registry.CHANGES}\n" in text
