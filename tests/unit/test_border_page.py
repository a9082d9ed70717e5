# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""docs/border.md names every verb of the helper, and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

from lunshare.drivers.protocol import frames
from lunshare.helper import connections, forms, portal_forms, processes, thread_limits
from lunshare.helper.commands import (
    MAX_HUNG,
    MAX_HUNG_EACH,
    MAX_RUNNING,
    MAX_RUNNING_EACH,
    Commands,
)
from lunshare.helper.lio import target_requests
from lunshare.helper.main import verbs
from lunshare.helper.mounts import Mounts
from lunshare.helper.nfs import answering, files, mount_points
from tests.unit.test_filters import SERVED, commands, served

__all__ = ["commands", "served"]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "border.md").read_text()
TESTS = ROOT / "tests" / "unit"

_ROW = re.compile(r"^\| `([a-z.]+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def test_the_page_has_every_verb(commands: Commands) -> None:
    assert {row[0] for row in _ROW.findall(PAGE)} == set(
        verbs(SERVED, commands, Mounts())
    )


def test_every_named_test_exists_and_calls_the_verb() -> None:
    for verb, _, named in _ROW.findall(PAGE):
        tests = re.findall(r"`(test_\w+\.py)`", named)
        assert tests, verb
        for each in tests:
            text = (TESTS / each).read_text()
            assert verb in text or _indirect(verb) in text, (verb, each)


def _indirect(verb: str) -> str:
    """How a test asks for it that does not write its name."""
    kind, _, what = verb.partition(".")
    if kind == "run":
        return "command"
    return f'("{what}"' if kind == "share" else what


def test_the_bounds_are_those_of_the_code() -> None:
    for number in (
        connections.MAX_CONNECTIONS,
        connections.FOR_ROOT,
        connections.MAX_LARGE,
        connections.FRAME_SECONDS,
        frames.MAX_VALUES,
        target_requests.MAX_CONNECTORS,
        portal_forms.MAX_PORTALS,
        forms.MAX_TEXT,
        thread_limits.MAX_WAITING,
        thread_limits.MAX_EACH,
        files.MAX_FILES,
        files.LONG_LIST,
        files.MAX_LONG_LISTS,
        connections.ANSWER_SECONDS,
        mount_points.MAX_POINTS,
        MAX_RUNNING,
        MAX_RUNNING_EACH,
        answering.ANSWERING_SECONDS,
        MAX_HUNG,
        MAX_HUNG_EACH,
    ):
        assert re.search(rf"\b{int(number):,}\b", PAGE), number
    for size in (frames.MAX_REQUEST, processes.MAX_OUTPUT, connections.MAX_UNREAD):
        assert f"{size // 1024**2} MiB" in PAGE
    unit = (ROOT / "systemd" / "lunshare-helper.service").read_text()
    assert "MemoryMax=2G" in unit
    assert "TasksMax=1024" in unit
