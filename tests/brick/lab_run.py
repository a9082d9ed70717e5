# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``make local-attach``: run the tests of this directory in a quick guest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from tests.brick import pins
from tests.lab import borrow

TESTS = "tests/brick"


def main(words: Sequence[str]) -> NoReturn:
    """Become a run of the lab; ``words`` are pytest's."""
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS, *words]
    borrow.become(command, {pins.GUEST: pins.venv()})


if __name__ == "__main__":
    main(sys.argv[1:])
