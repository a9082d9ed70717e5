# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step of every operation, on real storage; then the next start.

tests/restart does the same on the fake backend in seconds. Here disks, target,
helper and signal are real.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.system import kill_at_steps, killable_node
from tests.system.daemons import Forked, prepare

pytestmark = pytest.mark.system

#: The lanes of a run share two processors: 136 s alone, 292 s beside two more guests,
#: and beside six more than 600. A node that hangs is noticed by kill_at_steps.
_SECONDS = 1800

#: Two nodes run at the same time, because the machine has two processors.
LANES = (
    ("create", "attach", "connect", "last detach"),
    ("delete", "first attach", "other connector", "detach"),
)


@pytest.mark.timeout(_SECONDS + 20)
def test_next_start_repairs_a_kill_at_any_step(tmp_path: Path) -> None:
    assert {each for lane in LANES for each in lane} == set(killable_node.OPERATIONS)
    prepare()
    states = [tmp_path / f"lane{number}" for number, _ in enumerate(LANES)]
    databases = [each / "state/lunshare.sqlite" for each in states]
    processes = [
        Forked(
            functools.partial(
                kill_at_steps.lane,
                directory=state,
                others=others,
                operations=operations,
            ),
            [],
            tmp_path / f"{state.name}.log",
        )
        for state, others, operations in zip(
            states, databases[::-1], LANES, strict=True
        )
    ]
    try:
        for process in processes:
            assert process.ended(_SECONDS) == 0, process.output()
            print(process.output())
    finally:
        for process in processes:
            process.kill()
