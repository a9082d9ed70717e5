# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The summary of the kit names what holds, what failed and what was not tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = (
    *("-p", "lunshare.drivers.conformance.summary"),
    *("-p", "xdist"),
    *("-p", "no:cacheprovider"),
)

BINDINGS = """
from lunshare.drivers.conformance.fakes import FakeTargetFixtures, FakeVolumeFixtures
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.conformance.volume import VolumeContract
from tests.conformance.mutants.disks import DeleteOfAnUnknownVolumeFails


class TestCorrect(FakeVolumeFixtures, VolumeContract):
    pass


class TestBroken(FakeVolumeFixtures, VolumeContract):
    volume_class = DeleteOfAnUnknownVolumeFails


class TestTarget(FakeTargetFixtures, TargetContract):
    options = {"fake_enforces": False}


class TestWithoutPowerCut(FakeVolumeFixtures, VolumeContract):
    def power_cut(self, driver):
        return False


class TestSomethingElse:
    def test_unknown_is_nothing(self):
        pass
"""


_OF_TARGET = "(Target and can_read_and)"
BEHAVIOURS = f"unknown_volume or (PowerCut and disks_survive) or {_OF_TARGET}"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a run of these bindings in a worker process, as with `-n 2`."""
    path = tmp_path_factory.mktemp("kit") / "test_bound.py"
    path.write_text(BINDINGS)
    argv = [sys.executable, "-m", "pytest", *PLUGIN, "-n", "1", "-k", BEHAVIOURS]
    # The plugin of hypothesis takes longer to import than these behaviours run.
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        argv,
        check=False,  # one of the bindings is broken
        cwd=path.parent,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        text=True,
    )
    return run.stdout.splitlines()


@pytest.fixture
def summary(output: list[str]) -> pytest.LineMatcher:
    found = pytest.LineMatcher(output)
    found.fnmatch_lines(["*= conformance kit =*"])
    return found


def test_the_summary_counts_what_holds_for_each_driver(summary):
    summary.fnmatch_lines(["TestCorrect: 6 of 6 behaviours hold"])
    summary.no_fnmatch_line("TestSomethingElse: *")


def test_the_summary_names_each_failed_behaviour_and_its_error(summary):
    summary.fnmatch_lines(
        [
            "TestBroken: 4 of 6 behaviours hold, 2 failed",
            "    FAILED: delete_of_an_unknown_volume_succeeds",
            "        *UnknownDisk: volume *",
            "    FAILED: fill_of_an_unknown_volume_fails",
            "        in the teardown of it: *UnknownDisk: volume *",
        ]
    )


def test_the_summary_names_the_abilities_that_a_driver_does_not_have(summary):
    summary.fnmatch_lines(
        [
            "TestTarget: * 1 not offered by the driver*",
            "    abilities it does not have: enforces_read_only (for 1)",
        ]
    )


def test_the_summary_names_what_was_not_tried_and_what_to_override(summary):
    first = "created_and_filled_disks_survive_a_power_cut"
    second = "copied_and_reverted_disks_survive_a_power_cut"
    summary.fnmatch_lines(
        [
            "TestWithoutPowerCut: 6 of 8 behaviours hold, 2 not tried completely",
            "    NOT TRIED. To try it, override `power_cut`:",
            f"        a power cut after create ({first})",
            f"        a power cut after create_from ({second})",
            f"        a power cut after fill ({first})",
            f"        a power cut after revert ({second})",
        ]
    )


def test_a_run_without_the_kit_has_no_summary(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_a():\n    pass\n")
    result = pytester.runpytest(*PLUGIN)
    result.stdout.no_fnmatch_line("*conformance kit*")
