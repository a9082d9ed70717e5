# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit fails a driver that breaks a promise, at the behaviour that names it.

test_fake.py shows that the same behaviours pass with the correct fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

# Imported here, so that the runs below do not compile the kit again, once for each.
from lunshare.drivers.conformance import fakes, target, volume
from lunshare.drivers.targets.fake import FakeTarget
from tests.conformance.mutants import TABLES, Mutant

__all__ = ["fakes", "target", "volume"]
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


class CollectOnly:
    """A pytest plugin. Each binding has 157 behaviours, and one or two are run.

    To collect the others takes ten times as long as to run these.
    """

    def __init__(self, tests: Collection[str]) -> None:
        """``tests``: ``TestMutant::test_behaviour``, perhaps with ``[parameter]``."""
        self._tests = {test.partition("[")[0] for test in tests}

    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str
    ) -> list[pytest.Item] | None:
        """Nothing, for a behaviour that is not wanted."""
        if not isinstance(collector, pytest.Class) or not name.startswith("test_"):
            return None
        return None if f"{collector.name}::{name}" in self._tests else []


def binding(table: str, number: int, mutant: Mutant) -> str:
    """The kit bound to that mutant, as source."""
    kind = "Target" if issubclass(mutant, FakeTarget) else "Volume"
    attribute = f"{kind.lower()}_class"
    return BINDING.format(
        name=mutant.__name__, kind=kind, attribute=attribute, table=table, number=number
    )


def is_broken_promise(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether the kit saw a broken promise, rather than a mutant that cannot run."""
    if report.when != "call":
        return False
    message = str(report.longrepr.reprcrash.message)  # type: ignore[union-attr]
    return not message.startswith(("TypeError", "AttributeError", "NameError"))


@pytest.mark.parametrize("table", TABLES)
def test_the_kit_notices_every_broken_promise(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    table: str,
):
    mutants = TABLES[table]
    first = {mutant: number for number, (mutant, _) in reversed([*enumerate(mutants)])}
    bound = (binding(table, number, mutant) for mutant, number in first.items())
    path = pytester.makepyfile(test_bound=HEAD + "".join(bound))
    wanted = {f"Test{mutant.__name__}::test_{name}" for mutant, name in mutants}
    # The plugin of hypothesis alone takes longer to import than these behaviours run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.inline_run(
        "-p",
        "no:cacheprovider",
        "-q",
        *(f"{path}::{test}" for test in sorted(wanted)),
        plugins=[CollectOnly(wanted)],
    )
    _, _, failed = result.listoutcomes()
    noticed = {r.nodeid.partition("::")[2] for r in failed if is_broken_promise(r)}
    for test in sorted(wanted):
        mutant, _, name = test.removeprefix("Test").partition("::test_")
        record_property("mutant", [mutant, name, test in noticed])
    assert noticed == wanted
