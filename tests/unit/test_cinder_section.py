# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A backend's section of cinder.conf: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from lunshare.cinder.backend_section import Section
from lunshare.cinder.foreign_options import FOREIGN
from lunshare.drivers.errors import Misconfigured

_FAKE = "lunshare_storage = fake\nlunshare_target = fake\n"


def section(
    path: Path,
    lines: str,
    shared: str = "",
    directory: Path | None = None,
    two: str = "",
) -> Section:
    """The section [one], as cinder-volume has registered it, beside a section [two]."""
    file = path / "cinder.conf"
    file.write_text(f"[backend_defaults]\n{shared}\n[one]\n{lines}\n[two]\n{two}\n")
    conf = cfg.ConfigOpts()
    directories = [str(directory)] if directory else []
    conf(args=[], default_config_files=[str(file)], default_config_dirs=directories)
    for name in ("my_ip", "host", "state_path"):
        conf.register_opt(cfg.StrOpt(name, default="127.0.0.3"))
    conf.register_opt(cfg.ListOpt("enabled_backends", default=["one", "two"]))
    conf.register_opt(cfg.StrOpt("volume_backend_name"), group="one")
    for name in FOREIGN:  # Cinder knows them, so it does not refuse them
        conf.register_opt(cfg.StrOpt(name), group="one")
    return Section(conf, "one")


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_option_of_another_driver_is_refused_with_what_to_do(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(Misconfigured) as refused:
        section(tmp_path, f"{_FAKE}{name} = 1").load()
    text = str(refused.value)
    assert text.startswith(f"section [one]: {name} is not an option of lunshare: ")
    assert text.endswith(FOREIGN[name])


@pytest.mark.parametrize(
    "line", ["portal_firewall = true", "initiator_networks = 192.0.2.0/24"]
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_firewall_that_nobody_would_keep_is_refused(
    tmp_path: Path, line: str, shared: bool
) -> None:
    lines = "lunshare_storage = fake\nlunshare_target = lio\n"
    section(tmp_path, lines + "portal_firewall = false").load()
    one = section(tmp_path, lines + ("" if shared else line), line if shared else "")
    with pytest.raises(Misconfigured, match="everybody reaches the portals"):
        one.load()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("fake_whipe = true", "fake_whipe: no such option: its drivers know "),
        ("fake-wipe = true", "fake-wipe: no such option"),  # Cinder would ignore it
        ("volume-clear = none", "volume-clear is not an option of lunshare: remove"),
        ("fake_capacity_gb = much", "fake_capacity_gb"),
        ("lunshare_storage = zfs", "choose one of: fake, lvm, nfs"),
        ("lunshare_target = scst", "choose one of: fake, lio, nfs"),
        ("wipe_rate = -1", "wipe_rate"),
    ],
)
def test_wrong_section_is_refused_in_one_sentence(
    tmp_path: Path, lines: str, sentence: str
) -> None:
    names = [line.partition(" =")[0] for line in lines.splitlines()]
    rest = "".join(
        f"{line}\n" for line in _FAKE.splitlines() if line.split()[0] not in names
    )
    with pytest.raises(Misconfigured) as refused:
        section(tmp_path, rest + lines).load()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_misspelt_option_in_a_file_of_config_dir_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "cinder.conf.d"
    directory.mkdir()
    (directory / "one.conf").write_text(f"[one]\n{_FAKE}fake_whipe = true\n")
    with pytest.raises(Misconfigured, match="fake_whipe: no such option"):
        section(tmp_path, "", directory=directory).load()


def test_section_has_its_own_value_then_the_shared_one_then_the_default(
    tmp_path: Path,
) -> None:
    lines = f"{_FAKE}volume_backend_name = x\nfake_capacity_gb = 3\nfake_wipe = true"
    shared = "fake_capacity_gb = 9\nwipe_rate = 7"
    backend, options = section(tmp_path, lines, shared).load()
    assert backend.volumes.name == "one"
    assert options["fake_capacity_gb"] == 3
    assert options["fake_wipe"] is True
    assert options["wipe_rate"] == 7
    assert options["wipe_step"] == 64
    assert options["target_ip_address"] == "127.0.0.3"


_PEER = "volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver\n"
_PREFIX = "target_prefix = iqn.2010-10.org.openstack:\n"


@pytest.mark.parametrize(
    ("shared", "two"),
    [
        ("", f"{_PEER}volume_group = ssd"),
        ("", "volume_group = ssd"),  # it is Cinder's default driver
        ("volume_group = ssd", _PEER),
        ("", f"{_PEER}volume_group = ssd\n{_PREFIX}"),
    ],
)
def test_cinders_driver_on_the_same_targets_is_refused(
    tmp_path: Path, shared: str, two: str
) -> None:
    one = (
        f"lunshare_storage = lvm\nlunshare_target = lio\nvolume_group = ssd\n{_PREFIX}"
    )
    with pytest.raises(Misconfigured, match="From Cinder's LVM driver"):
        section(tmp_path, one, shared, two=two).load()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("volume_group = ssd", f"{_PEER}volume_group = ssd"),  # another prefix
        (f"volume_group = hdd\n{_PREFIX}", f"{_PEER}volume_group = ssd"),
        (f"volume_group = ssd\n{_PREFIX}", "volume_driver = other\nvolume_group = ssd"),
    ],
)
def test_cinders_driver_on_other_targets_is_not_refused(
    tmp_path: Path, one: str, two: str
) -> None:
    storage = "lunshare_storage = lvm\nlunshare_target = lio\n"
    assert section(tmp_path, storage + one, two=two).load()
