# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of one page of a list: a bound for their number, and one for their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import orjson

#: Bytes of the rows of a page; the last one may exceed it. 1,000 ordinary volumes with
#: two hosts each have less. Of answers that clients have not read yet the API keeps 192
#: MiB, and it closes the connections of those above
#: (lunshare.agent.http.connection_loop).
PAGE_BYTES = 4 * 2**20
#: What a row counts beside its large fields.
ROW_BYTES = 1024

R = TypeVar("R")


class PageRows(list[R]):
    """The rows of a page. ``is_full``: it has a bound's, so others may follow."""

    def __init__(self, rows: Iterable[R], is_full: bool) -> None:
        super().__init__(rows)
        self.is_full = is_full


def fill(
    rows: Iterable[R], limit: int, more_bytes: Callable[[R], int] | None = None
) -> PageRows[R]:
    """Read rows until the page is full: of ``limit`` rows, or of PAGE_BYTES.

    ``more_bytes`` returns how many a row has beside ROW_BYTES.
    """
    page, room = [], PAGE_BYTES
    for row in islice(rows, limit):
        page.append(row)
        room -= ROW_BYTES + (more_bytes(row) if more_bytes else 0)
        if room <= 0:
            return PageRows(page, True)
    return PageRows(page, len(page) == limit)


def json_bytes(*fields: Any) -> int:
    """Return how many bytes these fields have in an answer."""
    return len(orjson.dumps(fields))
