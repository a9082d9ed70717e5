# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the helper's tests; the helper runs under our own uid."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from lunshare.drivers.helper_client import Helper
from tests.unit.helper_thread import FILTERS, HelperThread, Serve, write_filters


@pytest.fixture
def filters(tmp_path: Path) -> Path:
    return write_filters(tmp_path, FILTERS)


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The file that names what the helper serves."""
    file = tmp_path / "helper.conf"
    file.write_text("[helper]\nvolume_groups = vg\n")
    file.chmod(0o644)
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "helper.sock"


@pytest.fixture
def serve(path: Path, filters: Path) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(allowed: Collection[int] = frozenset({os.getuid()})) -> HelperThread:
            started = HelperThread(path, filters, allowed)
            stack.callback(started.end)
            return started

        yield start


@pytest.fixture
def helper(serve: Serve, path: Path) -> Iterator[Helper]:
    serve()
    made = Helper(str(path))
    yield made
    made.close()
