# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files to read to follow a request are few, and ARCHITECTURE.md lists them.

``make walks`` writes the list.
"""

from __future__ import annotations

import pytest

from tests.unit import walks
from tests.unit.walks import Walk

MAX_FILES, MAX_LINES = 10, 1300


@pytest.fixture(scope="module")
def found() -> dict[str, Walk]:
    return {walk.name: walk for walk in walks.walk_all()}


@pytest.mark.parametrize("name", ["Attach", "Detach"])
def test_the_spine_of_an_attach_is_short(found: dict[str, Walk], name: str) -> None:
    walk = found[name]
    print(f"{name}: {len(walk.passed)} files passed; {walk.lines} lines to read")
    assert walk.spine[0] == "lunshare/agent/api/wsgi.py"
    assert walk.spine[-1] == "lunshare/drivers/backend.py"
    assert len(walk.spine) <= MAX_FILES
    assert walk.lines <= MAX_LINES


def test_the_page_lists_the_spines(found: dict[str, Walk]) -> None:
    page = (walks.ROOT / "ARCHITECTURE.md").read_text()
    _, _, rest = page.partition(walks.START)
    written = rest.partition(walks.END)[0].strip()
    assert written == walks.section([*found.values()]).strip(), "run make walks"
