# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many sessions a host has, from what the kernel shows: one, and those of all."""

from __future__ import annotations

import pytest

from lunshare.helper.lio.comparison import count_sessions


@pytest.mark.parametrize(
    ("shown", "total", "counted"),
    [
        ([], 0, []),
        ([1, 0], 1, [1, 0]),
        ([1, 1], 2, [1, 1]),
        ([1], 3, [3]),
        ([1, 0], 2, [2, 0]),
        ([1, 1], 3, [None, None]),
        ([1, 1, 0], 4, [None, None, 0]),
        # A session that was not the latest is logging out.
        ([0], 1, [1]),
        ([0, 0], 1, [None, None]),
        # One ended between the two reads.
        ([1, 1], 1, [1, 1]),
    ],
)
def test_the_sessions_of_a_host_are_counted_or_unknown(
    shown: list[int], total: int, counted: list[int | None]
) -> None:
    found = [{"sessions": number} for number in shown]
    count_sessions(found, total)
    assert [connector["sessions"] for connector in found] == counted
