# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit fails a driver that breaks a promise, at the behaviour that names it.

That the same behaviours pass with a whole driver is shown in test_fake.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lunshare.drivers.targets.fake import FakeTarget
from tests.conformance.mutants import TABLES, Mutant

pytest_plugins = ["pytester"]

HEAD = """
from lunshare.drivers.conformance.fakes import FakeTargetFixtures, FakeVolumeFixtures
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.conformance.volume import VolumeContract
from tests.conformance.mutants import TABLES
"""

BINDING = """
class Test{name}(Fake{kind}Fixtures, {kind}Contract):
    {attribute} = TABLES["{table}"][{number}][0]
    vars().update(getattr({attribute}, "bound", {{}}))
"""


def binding(table: str, number: int, mutant: Mutant) -> str:
    """The kit bound to that mutant, as source."""
    kind = "Target" if issubclass(mutant, FakeTarget) else "Volume"
    attribute = f"{kind.lower()}_class"
    return BINDING.format(
        name=mutant.__name__, kind=kind, attribute=attribute, table=table, number=number
    )


def told(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether the kit saw a broken promise, rather than a mutant that cannot run."""
    if report.when != "call":
        return False
    message = str(report.longrepr.reprcrash.message)  # type: ignore[union-attr]
    return not message.startswith(("TypeError", "AttributeError", "NameError"))


@pytest.mark.parametrize("table", TABLES)
def test_the_kit_notices_every_broken_promise(
    pytester: pytest.Pytester,
    record_property: Callable[[str, object], None],
    table: str,
):
    mutants = TABLES[table]
    first = {mutant: number for number, (mutant, _) in reversed([*enumerate(mutants)])}
    bound = (binding(table, number, mutant) for mutant, number in first.items())
    path = pytester.makepyfile(test_bound=HEAD + "".join(bound))
    wanted = {f"Test{mutant.__name__}::test_{name}" for mutant, name in mutants}
    result = pytester.inline_run(
        "-p", "no:cacheprovider", "-q", *(f"{path}::{test}" for test in sorted(wanted))
    )
    _, _, failed = result.listoutcomes()
    noticed = {r.nodeid.partition("::")[2] for r in failed if told(r)}
    for test in sorted(wanted):
        mutant, _, name = test.removeprefix("Test").partition("::test_")
        record_property("mutant", [mutant, name, test in noticed])
    assert noticed == wanted
