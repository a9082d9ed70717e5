# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper's apply, killed between any two of its lines and repeated."""

from __future__ import annotations

import random

import pytest

from lunshare.drivers.values import Portal
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_verbs import TargetVerbs
from tests.system.dying_apply import is_killed
from tests.system.lio_node import PORT, PREFIX, Node

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_SHOTS = 24
_PORTALS = (Portal("127.0.0.1", PORT),)
#: The state before and the wanted state: together they have every change of a host.
_CHANGES = [
    ({}, {"a": "rw", "b": "ro"}),
    ({"a": "rw", "b": "ro", "c": "rw", "d": "ro"}, {"a": "ro", "b": "rw", "c": "rw"}),
]


def _dying(node: Node, line: int, **wanted: str) -> bool:
    """Apply in a process that is killed at its ``line``th line; whether it was."""
    asked = Apply(node.export(**wanted), _PORTALS)
    return is_killed(line, lambda: TargetVerbs(PREFIX), asked)


@pytest.mark.parametrize(("before", "after"), _CHANGES, ids=["first", "change"])
def test_next_apply_completes_one_killed_at_any_line(
    node: Node, before: dict[str, str], after: dict[str, str]
) -> None:
    """The lines are spread over all of apply, and differ in each run."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chosen, most, shots = random.Random(seed), 1, 0
    while _dying(node, most * 2, **after):
        most *= 2
        _again(node, before)
    for turn in range(_SHOTS):
        _again(node, before)
        step = 2 * most // _SHOTS
        shots += _dying(node, 1 + turn * step + chosen.randrange(step), **after)
        live = node.live()
        assert all(
            "rw" in (before.get(host), after.get(host))
            for host, mode in live.items()
            if mode == "rw"
        ), (seed, turn)
        node.apply(**after)
        assert node.live() == after, (seed, turn)
        for host, mode in after.items():
            lun = (node.acl(host) / "lun_0/lun").resolve().name
            assert (lun == "lun_1") is (mode == "ro"), (seed, turn)
            assert lun != "lun_0", (seed, turn)
        assert node.apply(**after) == (), (seed, turn)
    assert shots > _SHOTS // 4


def _again(node: Node, modes: dict[str, str]) -> None:
    node.apply(**modes)
    if not modes:
        node.driver.remove(node.id)
