# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``make tempest``: start the daemon and Keystone, run Tempest, print the totals.

Exit code 1: a test failed, was skipped without being listed, has no result, or
something is left on the storage.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from tests.lab.steps import say, step
from tests.stands.keystone import Keystone
from tests.tempest import exclusions, results, tempest_run
from tests.tempest.environment import GUEST, Environment, Node, this_machine
from tests.tempest.exclusions import Exclusion
from tests.tempest.results import Result

SHOWN_CLASSES = 8


def main(words: Sequence[str]) -> int:
    """Run the tests that one of the expressions finds, or all; the exit code.

    ``--lab`` before them: this machine is a guest that ``lab_run`` has prepared.
    """
    if words[:1] == ["--lab"]:
        return run(GUEST, words[1:])
    return run(this_machine(), words)


def run(environment: Environment, patterns: Sequence[str]) -> int:
    """Run the tests that one of the expressions finds, or all; the exit code."""
    ids = {results.name(test): test for test in tempest_run.tests(environment.tests)}
    texts = [path.read_text() for path in environment.excluded]
    excluded = exclusions.apply(exclusions.read(*texts), [*ids])
    chosen = choose(ids, excluded, patterns)
    shutil.rmtree(environment.directory, ignore_errors=True)
    environment.directory.mkdir(parents=True)
    with servers(environment) as (keystone, node):
        config = tempest_run.configure(
            environment.directory, keystone.url, environment.backends
        )
        lists = tempest_run.split((ids[test] for test in chosen), os.cpu_count() or 1)
        began = time.monotonic()
        with step(f"run {len(chosen)} tests in {len(lists)} processes"):
            streams = tempest_run.run(environment.venv, config, lists)
        seconds = (time.monotonic() - began) * len(lists)
        left = node.left()
    found = [each for path in streams for each in results.read(environment.venv, path)]
    say_times(found, seconds)
    return report(chosen, found, excluded, left)


@contextmanager
def servers(environment: Environment) -> Iterator[tuple[Keystone, Node]]:
    """A Keystone, and a daemon that its catalog names."""
    with ExitStack() as stack:
        directory = environment.directory
        keystone = Keystone(
            environment.venv, directory / "keystone", environment.database
        )
        stack.enter_context(closing(keystone))
        node = environment.node(directory, keystone.options)
        stack.enter_context(closing(node))
        with step("start lunshared and Keystone"):
            keystone.start()
            node.start()
            keystone.prepare()
            keystone.announce(node.endpoint)
        yield keystone, node


def choose(
    tests: Iterable[str], excluded: Sequence[Exclusion], patterns: Sequence[str]
) -> list[str]:
    """The tests that are not excluded and that an expression finds, if there is one."""
    out = {test for exclusion in excluded for test in exclusion.tests}
    kept = [test for test in tests if test not in out]
    if patterns:
        kept = [test for test in kept if any(re.search(p, test) for p in patterns)]
    assert kept, f"no test is found by {' '.join(patterns)}"
    return kept


def report(
    chosen: Sequence[str],
    found: Sequence[Result],
    excluded: Sequence[Exclusion],
    left: Sequence[str] = (),
) -> int:
    """Print what did not pass or is ``left``, and the totals; the exit code."""
    failed = [each for each in found if not each.good]
    lost = results.missing(chosen, found)
    for each in failed:
        print(f"{each.status}: {each.test}\n    {each.cause}")
    for test in lost:
        print(f"no result: {test}")
    for name in left:
        print(f"left behind: {name}")
    for reason, count in reasons(excluded).items():
        print(f"excluded {count:3}: {reason}")
    passed = sum(each.good for each in found)
    out = sum(len(each.tests) for each in excluded)
    print(f"tempest: {passed} passed, {len(failed) + len(lost)} failed, {out} excluded")
    return 1 if failed or lost or left else 0


def say_times(found: Sequence[Result], seconds: float) -> None:
    """Print where the time of the processes went, which is ``seconds`` in all."""
    classes = results.slowest(found)
    rest = seconds - sum(each for each, _ in classes)
    say(f"{rest:6.1f} s in imports, and in the users and projects of each class")
    for each, where in classes[:SHOWN_CLASSES]:
        say(f"{each:6.1f} s in {where}")


def reasons(excluded: Sequence[Exclusion]) -> Counter[str]:
    """How many tests each reason excludes."""
    count: Counter[str] = Counter()
    for each in excluded:
        count[each.reason] += len(each.tests)
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
