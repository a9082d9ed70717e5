# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every system test is in one lane of the quick guests and in one of a stock kernel."""

from __future__ import annotations

from collections import Counter

import pytest

from lunshare.drivers.conformance.volume import VolumeContract
from tests.system import lanes

_KIT = "test_lvm_conformance.py"


def ids(names: tuple[str, ...]) -> Counter[str]:
    """What the lanes select, without the directory."""
    prefix = f"{lanes.HERE}/"
    return Counter(
        each.removeprefix(prefix) for lane in names for each in lanes.selected(lane)
    )


def test_every_file_is_in_one_lane() -> None:
    files = {
        file.name
        for file in lanes.HERE.glob("test_*.py")
        if not file.name.startswith("test_after_")
    }
    quick, stock = ids(lanes.QUICK), ids(lanes.STOCK)
    assert stock == Counter(files)
    whole = Counter({each: n for each, n in quick.items() if "::" not in each})
    assert whole == Counter(files - {_KIT})


def test_every_test_of_the_kit_is_in_one_lane() -> None:
    names = [name for name in dir(VolumeContract) if name.startswith("test_")]
    both = {f"{_KIT}::{kind}::{n}" for kind in ("TestThin", "TestThick") for n in names}
    found = ids(lanes.QUICK)
    of_kit = Counter({each: n for each, n in found.items() if "::" in each})
    assert of_kit == Counter(both)


@pytest.mark.parametrize("table", ["NODE_2", "TARGET", "JUDGED", "STOCK_ONLY"])
def test_a_table_names_files_that_exist(table: str) -> None:
    missing = [
        n for n in getattr(lanes, table) if not (lanes.HERE / f"{n}.py").exists()
    ]
    assert missing == []


def test_the_second_lane_of_the_kit_names_files_that_exist() -> None:
    modules = {
        getattr(VolumeContract, name).__module__.rpartition(".")[2]
        for name in dir(VolumeContract)
        if name.startswith("test_")
    }
    assert set(lanes.KIT_2) < modules


@pytest.mark.parametrize("lane", ["target", "node"])
def test_nothing_comes_after_random_pdus(lane: str) -> None:
    assert lanes.selected(lane)[-1].endswith("/test_lio_fuzz.py")


def test_unknown_lane_is_refused() -> None:
    with pytest.raises(ValueError, match="lane third: choose one of lvm, node, thin-1"):
        lanes.selected("third")
