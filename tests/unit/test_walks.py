# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The files to read to follow a request are few, and ARCHITECTURE.md lists them.

``make walks`` writes the list.
"""

from __future__ import annotations

import pytest

from tests.unit import walks
from tests.unit.walks import Walk

MAX_FILES = 30
# The detach of the last host ends the export, and looks for logins that have begun.
MAX_LINES = {"Attach": 6500, "Detach": 6600}
HELPER = "lunshare/helper/server.py"


@pytest.fixture(scope="module")
def traced() -> dict[str, Walk]:
    return {walk.name: walk for walk in walks.walk_all()}


@pytest.mark.parametrize("name", MAX_LINES)
def test_the_way_of_an_attach_to_the_kernel_is_short(
    traced: dict[str, Walk], name: str
) -> None:
    walk = traced[name]
    print(f"{name}: {len(walk.passed)} files passed; {walk.lines} lines to read")
    assert walk.spine[0] == "lunshare/agent/api/wsgi.py"
    assert HELPER in walk.spine
    assert "lunshare/helper/lio/configfs.py" in walk.spine
    assert len(walk.spine) <= MAX_FILES
    assert walk.lines <= MAX_LINES[name]


def test_a_create_ends_where_lvcreate_starts(traced: dict[str, Walk]) -> None:
    spine = traced["Create"].spine
    assert {HELPER, "lunshare/helper/lvm/changes.py"} <= {*spine}
    assert len(spine) <= MAX_FILES + 5


@pytest.mark.parametrize("name", ["Attach", "Detach", "Create"])
def test_open_context_managers_are_counted_with_what_they_run(
    traced: dict[str, Walk], name: str
) -> None:
    """No frame of them is on the stack: they are suspended, or have returned."""
    expected = {"lunshare/agent/backends.py", "lunshare/agent/volume_locks.py"}
    assert expected <= {*traced[name].spine}


def test_the_page_lists_the_walks(traced: dict[str, Walk]) -> None:
    page = (walks.ROOT / "ARCHITECTURE.md").read_text()
    _, _, rest = page.partition(walks.START)
    written = rest.partition(walks.END)[0]
    section = walks.section([*traced.values()])
    # What two threads enter at the same time has no order.
    assert _sorted(written) == _sorted(section), "run make walks"


def _sorted(section: str) -> list[list[str]]:
    """The lines of each walk in it."""
    return [sorted(part.split("\n")) for part in section.strip().split("\n**")]
