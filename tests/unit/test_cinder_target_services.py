# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A unit that restores another program's targets at a boot is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.cinder.target_services import UNITS, require_masked
from lunshare.drivers.errors import Misconfigured


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """As /etc/systemd/system."""
    directory = tmp_path / "system"
    (directory / "multi-user.target.wants").mkdir(parents=True)
    return directory


def enable(units: Path, unit: str) -> None:
    """As systemctl enable."""
    file = units.parent / unit
    file.write_text("[Service]\n")
    (units / "multi-user.target.wants" / unit).symlink_to(file)


@pytest.mark.parametrize("unit", UNITS)
def test_enabled_unit_is_refused(units: Path, unit: str) -> None:
    enable(units, unit)
    with pytest.raises(Misconfigured, match=f"{unit} is enabled: at a boot") as raised:
        require_masked(units)
    assert "systemctl mask" in raised.value.remedy


@pytest.mark.parametrize("unit", UNITS)
def test_masked_unit_is_accepted(units: Path, unit: str) -> None:
    enable(units, unit)
    (units / unit).symlink_to("/dev/null")
    require_masked(units)


def test_unit_whose_package_was_removed_is_accepted(units: Path) -> None:
    enable(units, UNITS[0])
    (units.parent / UNITS[0]).unlink()
    require_masked(units)


def test_node_without_such_units_is_accepted(units: Path, tmp_path: Path) -> None:
    enable(units, "lunshare-helper.service")
    require_masked(units)
    require_masked(tmp_path / "no-systemd")
