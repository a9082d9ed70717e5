# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit bound to LIO with the disks of a driver from outside: plain files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.conformance.root import OwnRoot
from lunshare.drivers.conformance.target import TargetContract
from lunshare_dirs.driver import DirsVolumes
from tests.system.lvm_kit import root
from tests.system.test_lio_conformance import LioFixtures, mapper

__all__ = ["mapper", "root"]
pytestmark = pytest.mark.system

FILTERS = Path(__file__).parents[1] / "outside_driver" / "rootwrap.d" / "dirs.filters"


class TestDirsOnLio(LioFixtures, TargetContract):
    @pytest.fixture
    def volumes(self, tmp_path: Path) -> VolumeDriver:
        pool, filters = tmp_path / "pool", tmp_path / "rootwrap.d"
        for each in (pool, filters):
            each.mkdir(mode=0o755)
        text = FILTERS.read_text().replace("/var/lib/lunshare-dirs", str(pool))
        (filters / "dirs.filters").write_text(text)
        (filters / "dirs.filters").chmod(0o644)
        options = defaults(DirsVolumes, dirs_path=str(pool))
        return DirsVolumes("kit", options, OwnRoot(str(filters)))
