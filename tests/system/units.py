# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed units and their journal."""

from __future__ import annotations

import subprocess

DAEMON, HELPER = "lunshared.service", "lunshare-helper.service"
HELPER_SOCKET = "lunshare-helper.socket"


def run(*argv: str, seconds: float = 60) -> str:
    """A command that is to succeed; its stdout."""
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def systemctl(*words: str) -> str:
    """systemctl, which waits until what it starts is READY."""
    return run("systemctl", *words, seconds=120).strip()


def main_pid(unit: str) -> int:
    """The unit's process; 0 when it has none."""
    return int(systemctl("show", "--property", "MainPID", "--value", unit))


class Journal:
    """What our units have said since this was made."""

    def __init__(self) -> None:
        told = run("journalctl", "--lines=0", "--show-cursor")
        self._cursor = told.splitlines()[-1].removeprefix("-- cursor: ")

    def text(self, unit: str = "lunshare*") -> str:
        """Their lines; nothing is lost between writing and reading."""
        run("journalctl", "--sync")
        return run(
            "journalctl", "--unit", unit, "--output=cat", "--after-cursor", self._cursor
        )

    def says(self, *words: str) -> bool:
        """Whether one line has all of these words."""
        lines = self.text().splitlines()
        return any(all(word in line for word in words) for line in lines)
