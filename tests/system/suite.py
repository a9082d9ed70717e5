# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run the system tests in two parallel lanes; then print how many there were.

``python -m tests.system.suite DIRECTORY`` writes the reports of both lanes (JUnit
XML) to the directory. LVM's tests take longest. They have their own disks, helpers
and names, so they can run beside the tests of the installed node.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
_AFTER = "test_after_"  # of a reboot and of a power cut: tests/system/run
_LVM = "test_lvm_"
_OUTCOMES = ("failure", "error", "skipped")


def main(argv: list[str]) -> int:
    """Run both, show LVM's output last; 0 when every test has passed."""
    directory = Path(argv[0])
    files = [f for f in sorted(HERE.glob("test_*.py")) if not f.name.startswith(_AFTER)]
    lvm = [each for each in files if each.name.startswith(_LVM)]
    node = [each for each in files if each not in lvm]
    reports = [directory / "system-lvm.xml", directory / "system-node.xml"]
    with (directory / "system-lvm.log").open("w+") as log:
        beside = subprocess.Popen(_lane(lvm, reports[0]), stdout=log, stderr=log)
        codes = [subprocess.run(_lane(node, reports[1]), check=False).returncode]
        codes.append(beside.wait())
        log.seek(0)
        print(log.read())
    print(_summary(sum((_counted(each) for each in reports), Counter())))
    return max(codes)


def _lane(files: list[Path], report: Path) -> list[str]:
    return [*_PYTEST, "--junitxml", str(report), *map(str, files)]


def _counted(report: Path) -> Counter[str]:
    """How many tests there were of each outcome."""
    cases = ElementTree.parse(report).iter("testcase")
    outcomes = ({child.tag for child in case} & {*_OUTCOMES} for case in cases)
    return Counter(found.pop() if found else "passed" for found in outcomes)


def _summary(counts: Counter[str]) -> str:
    others = ", ".join(f"{counts[each]} {each}" for each in _OUTCOMES)
    kernel = os.uname().release
    return f"kernel {kernel}: {counts['passed']} tests passed, {others}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
