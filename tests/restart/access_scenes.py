# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What hosts have before two clients come, and the explorer for tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.restart.access_explorer import Explorer
from tests.restart.access_operations import NAMED
from tests.restart.node_states import Saved

_ONE_WRITER = ("attach: rw a", "attach: ro b", "limit: to 1 a")
SCENES = {
    "one writer of at most one": _ONE_WRITER,
    "a fenced writer of at most one": (*_ONE_WRITER, "fence a"),
    "two writers": ("attach: rw a", "attach: rw b"),
    "nobody": ("limit: to 1 a",),
    "two readers of no writer": ("attach: ro a", "attach: ro b", "limit: to 0 a"),
    "two readers": ("attach: ro a", "attach: ro b"),
    "a writer that may not write": (*_ONE_WRITER, "fence: of writes a"),
}


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    made = Explorer(tmp_path_factory.mktemp("access"))
    logging.disable(logging.CRITICAL)  # each order would fill a page
    yield made
    logging.disable(logging.NOTSET)
    made.close()


def begin(explorer: Explorer, scene: str) -> Saved:
    """Return the state of a scene; what was explored before is forgotten."""
    explorer.forget()
    return explorer.begin([NAMED[name] for name in SCENES[scene]])
