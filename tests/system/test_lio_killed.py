# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The helper's apply, killed between any two of its lines and repeated."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import lunshare.drivers.helper
from lunshare.drivers.helper.lio.target_requests import Apply
from lunshare.drivers.helper.lio.target_verbs import TargetVerbs
from lunshare.drivers.values import Portal
from tests.system.lio_node import PORT, PREFIX, Node

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_OURS = str(Path(lunshare.drivers.helper.__file__).parent)
_SHOTS = 24
_PORTALS = (Portal("127.0.0.1", PORT),)
#: The state before and the wanted state: together they have every change of a host.
_CHANGES = [
    ({}, {"a": "rw", "b": "ro"}),
    ({"a": "rw", "b": "ro", "c": "rw", "d": "ro"}, {"a": "ro", "b": "rw", "c": "rw"}),
]


def _dying(node: Node, line: int, **wanted: str) -> bool:
    """Apply in a process that is killed at its ``line``th line; whether it was."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        left -= event == "line"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        lio, asked = TargetVerbs(PREFIX), Apply(node.export(**wanted), _PORTALS)
        threading.settrace(trace)
        sys.settrace(trace)
        lio.apply(asked, 20)
    finally:
        os._exit(0)


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
            assert lun == {"rw": "lun_0", "ro": "lun_1"}[mode], (seed, turn)
        assert node.apply(**after) == (), (seed, turn)
    assert shots > _SHOTS // 4


def _again(node: Node, modes: dict[str, str]) -> None:
    node.apply(**modes)
    if not modes:
        node.driver.remove(node.id)
