# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run lanes of the system tests in parallel; then print how many tests there were.

``python -m tests.system.suite DIRECTORY [LANE...]`` writes a report (JUnit XML) for
each lane to the directory. ``lanes.py`` has the lanes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from tests.system import lanes

_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
_OUTCOMES = ("failure", "error", "skipped")


def main(argv: list[str]) -> int:
    """Run the lanes, show the first one's output last; 0 when every test has passed."""
    directory, names = Path(argv[0]), argv[1:] or lanes.STOCK
    *beside, last = names
    reports = {lane: directory / f"system-{lane}.xml" for lane in names}
    logs = {lane: (directory / f"system-{lane}.log").open("w+") for lane in beside}
    started = [
        subprocess.Popen(_pytest(lane, reports[lane]), stdout=log, stderr=log)
        for lane, log in logs.items()
    ]
    codes = [subprocess.run(_pytest(last, reports[last]), check=False).returncode]
    codes += [each.wait() for each in started]
    for log in logs.values():
        log.seek(0)
        print(log.read())
    print(_totals(sum((_counted(each) for each in reports.values()), Counter())))
    return max(codes)


def _pytest(lane: str, report: Path) -> list[str]:
    return [*_PYTEST, "--junitxml", str(report), *lanes.selected(lane)]


def _counted(report: Path) -> Counter[str]:
    """How many tests there were of each outcome."""
    if not report.exists():
        print(f"{report.stem}: pytest ended without a report, as if it was killed")
        return Counter(error=1)
    cases = ElementTree.parse(report).iter("testcase")
    outcomes = ({child.tag for child in case} & {*_OUTCOMES} for case in cases)
    return Counter(found.pop() if found else "passed" for found in outcomes)


def _totals(counts: Counter[str]) -> str:
    others = ", ".join(f"{counts[each]} {each}" for each in _OUTCOMES)
    kernel = f"{os.uname().release}{' (User-mode Linux)' if lanes.is_uml() else ''}"
    return f"kernel {kernel}: {counts['passed']} tests passed, {others}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
