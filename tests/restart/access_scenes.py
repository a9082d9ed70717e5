# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What hosts have before two clients come, and the explorer for tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from lunshare.agent import boot_clock
from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import NAMED
from tests.restart.node_states import Clock, Saved

_TWO_READERS = ("attach: ro a", "attach: ro b")
_ONE_WRITER = ("attach: rw a", "attach: ro b", "limit: to 1 a")
SCENES = {
    "one writer of at most one": _ONE_WRITER,
    "a fenced writer of at most one": (*_ONE_WRITER, "fence a"),
    "two writers": ("attach: rw a", "attach: rw b"),
    "a writer with a lease": (*_TWO_READERS, "limit: of both a", "lend a"),
    "a lease that the next one gets": (
        *_TWO_READERS,
        "limit: of both a",
        "lend: then the next a",
    ),
    "nobody": ("limit: to 1 a",),
    "two readers of no writer": (*_TWO_READERS, "limit: to 0 a"),
    "two readers": _TWO_READERS,
    "a writer that may not write": (*_ONE_WRITER, "fence: of writes a"),
}


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boot_clock, "seconds", clock)
        made = Explorer(tmp_path_factory.mktemp("access"), clock)
        logging.disable(logging.CRITICAL)  # each order would fill a page
        yield made
        logging.disable(logging.NOTSET)
        made.close()


def begin(explorer: Explorer, scene: str) -> Saved:
    """Return the state of a scene; what was explored before is forgotten."""
    explorer.forget()
    return explorer.begin([NAMED[name] for name in SCENES[scene]])
