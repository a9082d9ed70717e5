# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A run of the kit says at its end what each driver keeps, and what it does not."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PLUGIN = (
    *("-p", "lunshare.drivers.conformance.summary"),
    *("-p", "xdist"),
    *("-p", "no:cacheprovider"),
)

BINDINGS = """
from lunshare.drivers.conformance.fakes import FakeVolumeFixtures
from lunshare.drivers.conformance.volume import VolumeContract
from tests.conformance.mutants.disks import DeleteOfTheUnknownFails


class TestWhole(FakeVolumeFixtures, VolumeContract):
    pass


class TestBroken(FakeVolumeFixtures, VolumeContract):
    volume_class = DeleteOfTheUnknownFails


class TestSomethingElse:
    def test_of_the_unknown_is_nothing(self):
        pass
"""


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch):
    """The plugin of hypothesis takes longer to import than these runs take."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_totals_are_told_for_each_driver(pytester: pytest.Pytester):
    pytester.makepyfile(BINDINGS)
    # The results come from another process, as with `-n 2`.
    result = pytester.runpytest(*PLUGIN, "-n", "1", "-k", "of_the_unknown_is")
    result.stdout.fnmatch_lines(["*= conformance kit =*"])
    result.stdout.fnmatch_lines(["TestWhole * 6 behaviours kept"])
    result.stdout.fnmatch_lines(["TestBroken * kept, 1 failed*"])
    result.stdout.no_fnmatch_line("TestSomethingElse * kept*")


def test_a_run_without_the_kit_says_nothing_of_it(pytester: pytest.Pytester):
    pytester.makepyfile("def test_a():\n    pass\n")
    result = pytester.runpytest(*PLUGIN)
    result.stdout.no_fnmatch_line("*conformance kit*")
