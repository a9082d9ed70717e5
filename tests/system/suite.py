# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run the system tests in parallel lanes; then print how many there were.

``python -m tests.system.suite DIRECTORY [LANE...]`` writes a report (JUnit XML) for
each lane to the directory. The conformance kit on LVM takes longest. It has its own
disks, helpers and names, so it can run beside the tests of the installed node. A quick
guest has one processor, so there each half of the kit (lanes ``thin`` and ``thick``)
has its own guest. Every run repeats the lane ``judged`` on Debian's own kernel
(tests/system/run).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
LANES = ("lvm", "node")
#: The acceptance path, access and its end, read-only hosts, and the cost of an attach.
JUDGED = (
    "test_access",
    "test_attachments",
    "test_costs",
    "test_failed_attach",
    "test_hung_disk",
    "test_kernel_initiator",
    "test_lio_closing",
    "test_lio_killed",
)
#: User-mode Linux has no process connector, which counts the processes. And in 6.12.101
#: the daemon ends with SIGSEGV when the test reads its /proc/PID/mem (3 of 3; a small
#: program with threads does not, and the stock kernels have no such fault).
STOCK_ONLY = ("test_costs",)
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
_AFTER = "test_after_"  # of a reboot and of a power cut: tests/system/run
_LVM = "test_lvm_driver"
_THICK = str(HERE / f"{_LVM}.py::TestThick")
#: Lanes that are a part of a file: what pytest selects.
_PARTS = {
    "thick": [_THICK],
    "thin": [str(HERE / f"{_LVM}.py"), "-k", "not TestThick"],
}
_OUTCOMES = ("failure", "error", "skipped")


def main(argv: list[str]) -> int:
    """Run the lanes, show the first one's output last; 0 when every test has passed."""
    directory, lanes = Path(argv[0]), argv[1:] or LANES
    *beside, last = lanes
    reports = {lane: directory / f"system-{lane}.xml" for lane in lanes}
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


def files(lane: str) -> list[Path]:
    """The test files of a lane on the kernel that runs."""
    found = [f for f in sorted(HERE.glob("test_*.py")) if not f.name.startswith(_AFTER)]
    if _is_uml():
        found = [each for each in found if each.stem not in STOCK_ONLY]
    if lane == "judged":
        return [each for each in found if each.stem in JUDGED]
    return [each for each in found if each.name.startswith(_LVM) == (lane == "lvm")]


def _is_uml() -> bool:
    """Whether this kernel is User-mode Linux; see /proc/cpuinfo there."""
    return "User Mode Linux" in Path("/proc/cpuinfo").read_text()


def _pytest(lane: str, report: Path) -> list[str]:
    selected = _PARTS.get(lane) or [str(each) for each in files(lane)]
    return [*_PYTEST, "--junitxml", str(report), *selected]


def _counted(report: Path) -> Counter[str]:
    """How many tests there were of each outcome."""
    cases = ElementTree.parse(report).iter("testcase")
    outcomes = ({child.tag for child in case} & {*_OUTCOMES} for case in cases)
    return Counter(found.pop() if found else "passed" for found in outcomes)


def _totals(counts: Counter[str]) -> str:
    others = ", ".join(f"{counts[each]} {each}" for each in _OUTCOMES)
    kernel = f"{os.uname().release}{' (User-mode Linux)' if _is_uml() else ''}"
    return f"kernel {kernel}: {counts['passed']} tests passed, {others}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
