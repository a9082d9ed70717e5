# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Random input: so many examples, from a seed that is printed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

Fuzz = Callable[..., None]


@pytest.fixture
def fuzz(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Fuzz:
    """Runs a check with so many examples, and prints their number and the seed."""
    wanted: int = request.config.getoption("--fuzz-examples")
    number = request.config.getoption("--fuzz-seed")
    number = int.from_bytes(os.urandom(4), "big") if number is None else number

    def run(check: Callable[[Any], None], *strategies: Any) -> None:
        done = 0

        def counted(example: tuple[Any, ...]) -> None:
            nonlocal done
            done += 1
            check(*example)

        limits = settings(
            max_examples=wanted,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(number)(limits(given(st.tuples(*strategies))(counted)))()
        finally:
            name = request.node.name.removeprefix("test_")
            record_property("fuzz", f"{name}: {done} examples, seed {number}")

    return run
