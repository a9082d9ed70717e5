# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The results of a run: from subunit to the totals that are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.steps import sh
from tests.tempest import pins

# One line per test: id, status, seconds, and the text of its failure or skip.
_TO_JSON = """
import json, sys
from subunit import ByteStreamToStreamResult
from testtools import StreamToDict

def say(test):
    began, ended = test["timestamps"]
    seconds = (ended - began).total_seconds() if began and ended else 0
    kept = [d for n, d in test["details"].items() if "traceback" in n or n == "reason"]
    text = "".join(each.as_text() for each in kept)
    print(json.dumps([test["id"], test["status"], seconds, text]))

result = StreamToDict(say)
result.startTestRun()
ByteStreamToStreamResult(open(sys.argv[1], "rb")).run(result)
result.stopTestRun()
"""
_GOOD = ("success", "xfail")
_LISTED = "exists"  # the runner lists its tests before it runs them
_EXCEPTION = re.compile(r"^\w+(?:\.\w+)+: .*", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """How one test ended; ``status`` is subunit's word."""

    test: str
    status: str
    seconds: float
    text: str

    @property
    def good(self) -> bool:
        """Whether it passed. A test that did not end did not pass."""
        return self.status in _GOOD

    @property
    def cause(self) -> str:
        """Its exception, or why it was skipped."""
        lines = _EXCEPTION.findall(self.text) or self.text.strip().splitlines()
        return lines[-1] if lines else self.status


def read(venv: Path, stream: Path) -> list[Result]:
    """The results in this subunit stream."""
    words = [venv / "bin/python", "-c", _TO_JSON, stream]
    lines = sh(words, env=pins.environ()).splitlines()
    rows = [json.loads(line) for line in lines]
    return [Result(name(row[0]), *row[1:]) for row in rows if row[1] != _LISTED]


def name(test: str) -> str:
    """The id without its attributes, which Tempest appends in brackets."""
    return re.sub(r"\[.*\]$", "", test)


def missing(expected: Iterable[str], results: Sequence[Result]) -> list[str]:
    """Tests that have no result: their process ended, or their class failed."""
    return sorted(set(expected) - {result.test for result in results})


def slowest(results: Iterable[Result]) -> list[tuple[float, str]]:
    """Seconds of each class of tests, the slowest first."""
    seconds: dict[str, float] = {}
    for result in results:
        where = result.test.removeprefix("tempest.api.volume.").rpartition(".")[0]
        seconds[where] = seconds.get(where, 0) + result.seconds
    return sorted(((s, where) for where, s in seconds.items()), reverse=True)
