# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The client of ``compute_host``, which runs beside it as a process of its own."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

#: On an emulated machine the imports alone have taken more than 60.
SECONDS = 240


class Compute:
    """A compute host that answers one verb after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.compute_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, verb: str, argument: object = None) -> Any:
        """Send a verb; returns its answer, which must come in time."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([verb, argument]) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        assert ready, f"{verb} took more than {SECONDS} seconds"
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()
