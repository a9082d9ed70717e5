# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests are left out: ``exclusions.toml``, checked against the real tests."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: What no run has, and what the one on LVM and LIO leaves to ``make tempest``.
FILE = Path(__file__).with_name("exclusions.toml")
LAB_FILE = Path(__file__).with_name("lab_exclusions.toml")


@dataclass(frozen=True)
class Exclusion:
    """Tests that one expression finds, and why they do not run."""

    pattern: str
    reason: str
    tests: tuple[str, ...]


def read(*texts: str) -> Mapping[str, str]:
    """The reason of each expression in these files."""
    reasons = {}
    for entry in (each for text in texts for each in tomllib.loads(text)["exclude"]):
        for pattern in entry["tests"]:
            assert pattern not in reasons, f"{pattern} is listed twice"
            reasons[pattern] = entry["reason"]
    return reasons


def apply(reasons: Mapping[str, str], tests: Sequence[str]) -> list[Exclusion]:
    """What each expression leaves out of all tests; each must find at least one.

    A test that two expressions find counts for the first.
    """
    left, found = list(tests), []
    for pattern, reason in reasons.items():
        hits = tuple(test for test in left if re.search(pattern, test))
        assert hits, f"{pattern} finds no test that runs otherwise"
        left = [test for test in left if test not in hits]
        found.append(Exclusion(pattern, reason, hits))
    return found
