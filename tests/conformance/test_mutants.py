# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit fails a driver that breaks a promise, at the behaviour that names it.

That the same behaviours pass with a whole driver is shown in test_fake.py.
"""

from __future__ import annotations

import pytest

from drivers.targets.fake import FakeTarget
from tests.conformance.mutants import MUTANTS

pytest_plugins = ["pytester"]

HEAD = """
from drivers.conformance.fakes import FakeTargetFixtures, FakeVolumeFixtures
from drivers.conformance.target import TargetContract
from drivers.conformance.volume import VolumeContract
from tests.conformance import mutants
"""

BINDING = """
class Test{name}(Fake{kind}Fixtures, {kind}Contract):
    {attribute} = mutants.{name}
"""


def binding(mutant: type) -> str:
    """The kit bound to that mutant, as source."""
    kind = "Target" if issubclass(mutant, FakeTarget) else "Volume"
    attribute = f"{kind.lower()}_class"
    return BINDING.format(name=mutant.__name__, kind=kind, attribute=attribute)


def test_the_kit_notices_every_broken_promise(pytester: pytest.Pytester):
    source = HEAD + "".join(binding(mutant) for mutant, _ in MUTANTS)
    path = pytester.makepyfile(test_bound=source)
    wanted = {f"Test{mutant.__name__}::test_{name}" for mutant, name in MUTANTS}
    result = pytester.inline_run(
        "-p", "no:cacheprovider", "-q", *(f"{path}::{test}" for test in sorted(wanted))
    )
    passed, _, failed = result.listoutcomes()
    assert not passed
    noticed = {r.nodeid.partition("::")[2] for r in failed if r.when == "call"}
    assert noticed == wanted
