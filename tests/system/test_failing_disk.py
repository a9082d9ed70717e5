# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The disk of a volume group fails: what lunshare reports, and what it leaves alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import DriverError
from lunshare.drivers.lvm import LvmVolumes
from tests.system.broken_disk import Trouble
from tests.system.lvm_kit import (
    build_lvm,
    failing_group,
    fill,
    group,
    pool_status,
    repair_pool,
    root,
)

__all__ = ["group", "root"]
pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SIZE = 8 * MIB


@pytest.fixture
def thin(root: Root) -> Iterator[LvmVolumes]:
    driver = build_lvm(root)
    driver.check()
    yield driver
    repair_pool()
    for disk in driver.disks():
        driver.delete(disk.volume_id)


@pytest.mark.parametrize("trouble", ["error", "error_writes"])
def test_health_checks_do_not_make_a_pool_read_only(
    thin: LvmVolumes, root: Root, trouble: Trouble
) -> None:
    """To read its status with a flush commits its metadata, and that write fails."""
    volume = new_volume(SIZE)
    thin.create(volume)
    fill(volume.name, b"before")
    with failing_group(trouble):
        for driver in (thin, build_lvm(root)):
            for query in (driver.check, driver.capacity, driver.disks):
                with contextlib.suppress(DriverError):
                    query()
    assert " rw " in pool_status()
    assert not thin.capacity().closed
    fill(volume.name, b"after")


def test_pool_that_met_an_error_is_closed_until_it_is_repaired(
    thin: LvmVolumes, root: Root
) -> None:
    volume = new_volume(SIZE)
    thin.create(volume)
    with failing_group("error_writes"), pytest.raises(DriverError):
        thin.create(new_volume(SIZE))  # lvcreate commits the pool's metadata
    for driver in (thin, build_lvm(root)):
        driver.check()
        assert "health" in driver.capacity().closed
        with pytest.raises(DriverError, match="health"):
            driver.create(new_volume(SIZE))
    repair_pool()
    assert not thin.capacity().closed
    fill(volume.name, b"after")
