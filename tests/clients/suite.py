# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``make clients``: drive the clients, and compare docs/clients.md with the results.

Exit code 1: a test failed, a command of a client is neither tested nor listed in
left_out.toml, or the page is not current.
"""

from __future__ import annotations

import difflib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.clients import coverage, page, pins, record
from tests.lab.steps import say, step
from tests.stands.servers import ROOT
from tests.tempest import pins as keystone_pins

DIRECTORY = ROOT / "build" / "clients"
RECORD = DIRECTORY / "record"
PAGE = ROOT / "docs" / "clients.md"
TESTS = "tests/clients"


def main(words: Sequence[str]) -> int:
    """Run the tests; the exit code."""
    given = [word for word in words if word != "--write"]
    for each in (keystone_pins.venv, pins.clients, pins.nova):
        each()
    if not given:  # a part of the tests installs it when it is needed
        pins.ansible()
        pins.collections()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    RECORD.mkdir(parents=True)
    code = subprocess.run(_pytest(given), cwd=ROOT, check=False).returncode
    if code or given:
        return code
    entries = record.read(sorted(RECORD.glob("*.json")))
    with step("ask each client for its commands"):
        left_out = coverage.check(entries)
    return _compare(page.text(entries, left_out), write="--write" in words)


def _pytest(given: Sequence[str]) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [f"--basetemp={DIRECTORY / 'tests'}", "-n", "2", "--dist", "loadscope"]
    words += ["--timeout=900"]  # the longest takes half a minute, but on two busy CPUs
    # After the path, since only a conftest in it knows the option.
    return [*words, TESTS, f"--record={RECORD}", *given]


def _compare(text: str, write: bool) -> int:
    if write:
        PAGE.write_text(text)
        return 0
    now = PAGE.read_text().splitlines() if PAGE.exists() else []
    changes = list(difflib.unified_diff(now, text.splitlines(), lineterm="", n=0))
    if not changes:
        say(f"{PAGE.relative_to(ROOT)} is current")
        return 0
    print("\n".join(changes))
    print(f"{PAGE.relative_to(ROOT)} is not what this run found: make clients-page")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
