# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A program in another venv that answers lines of JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")


class Process:
    """One of the programs, started with a Python that has the client."""

    def __init__(
        self, venv: Path, program: str, *words: str, environ: dict[str, str], log: Path
    ) -> None:
        command = [venv / "bin/python", "-W", "ignore", PROGRAMS / program, *words]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                env=environ,
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log

    def ask(self, *words: Any) -> Any:
        """Send one line, and return the line that it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)
