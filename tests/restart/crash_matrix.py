# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill each operation that changes who may write at each of its steps, and each start.

``make matrix`` prints the table of docs/decisions/0044. One client does the operation;
it is a matrix of crashes, not of orders (``test_access_orders``).
"""

from __future__ import annotations

import pytest

from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import NAMED
from tests.restart.access_scenes import begin, explorer

__all__ = ["explorer"]

_ONE, _FENCED = "one writer of at most one", "a fenced writer of at most one"
_READERS, _LEASED = "two readers", "a writer with a lease"
#: By what changes: each operation, after its beginning.
MATRIX: dict[str, list[tuple[str, str]]] = {
    "policy": [
        (_READERS, "limit: to 0 a"),
        (_ONE, "limit: of both a"),
        (_LEASED, "limit: none a"),
    ],
    "mode": [(_ONE, "demote a"), (_ONE, "demote: at once a"), (_READERS, "promote b")],
    "handover": [
        (_ONE, "hand over: from one b"),
        (_ONE, "hand over: from all b"),
        (_ONE, "hand over: by force b"),
    ],
    "lease": [
        (_READERS, "lend a"),
        (_LEASED, "renew a"),
        (_LEASED, "time a"),
        ("a lease that the next one gets", "time a"),
    ],
    "fence": [
        (_ONE, "fence a"),
        (_ONE, "fence: of writes a"),
        (_FENCED, "unfence a"),
        (_ONE, "fence and unfence a"),
    ],
    "batch": [
        ("nobody", "attach both: ro a"),
        ("nobody", "attach both: no mode a"),
        (_ONE, "detach both a"),
    ],
}
_ROW = "| {:<9} | {:<23} | {:<30} | {:>5} | {:>5} | {:>7} |"


def test_every_crash(explorer: Explorer, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("change", "operation", "beginning", "steps", "kills", "writers")
    lines = [_ROW.format(*columns)]
    kills = 0
    for change, operations in MATRIX.items():
        for scene, name in operations:
            begun = begin(explorer, scene)
            explorer.explore(begun, (NAMED[name],), faults=1)
            found = explorer.counted
            assert found.kills > 1, name
            assert found.most_writers <= 1, name
            what = name.removesuffix(" a").removesuffix(" b")
            counts = (found.steps, found.kills, found.most_writers)
            lines.append(_ROW.format(change, what, scene, *counts))
            kills += found.kills
    with capsys.disabled():
        print("", *lines, f"{kills} kills", sep="\n")
