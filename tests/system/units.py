# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed units and their journal."""

from __future__ import annotations

import subprocess

DAEMON, HELPER = "lunshared.service", "lunshare-helper.service"
HELPER_SOCKET = "lunshare-helper.socket"


def run(*argv: str, seconds: float = 60) -> str:
    """Run a command that must succeed; returns its stdout."""
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        errors="backslashreplace",  # the kernel logs what a hostile host sends
        timeout=seconds,
    )
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def systemctl(*words: str) -> str:
    """Run systemctl, which waits until a started unit is READY."""
    return run("systemctl", *words, seconds=120).strip()


def main_pid(unit: str) -> int:
    """The unit's process; 0 when it has none."""
    return int(systemctl("show", "--property", "MainPID", "--value", unit))


class Journal:
    """The log lines of the units since this object was created."""

    def __init__(self) -> None:
        shown = run("journalctl", "--lines=0", "--show-cursor")
        self._cursor = shown.splitlines()[-1].removeprefix("-- cursor: ")

    def text(self, unit: str = "lunshare*") -> str:
        """Their lines, complete: journalctl --sync comes first."""
        run("journalctl", "--sync")
        return run(
            "journalctl", "--unit", unit, "--output=cat", "--after-cursor", self._cursor
        )
