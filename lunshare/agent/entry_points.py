# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of the daemon, where its libraries may be missing.

``pip install lunshare`` brings the drivers and the root helper, for a Cinder. The
programs are installed too, and name the extra that they need.
"""

from __future__ import annotations

import importlib
import signal
import sys


def lunshared() -> int:
    """Run the daemon; return its exit code."""
    # Until it has handlers: what it is made of takes a second to import.
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    return _run("lunshared", "main")


def lunshare_backup() -> int:
    """Run ``lunshare-backup``; return its exit code."""
    return _run("lunshare-backup", "backup_command")


def _run(program: str, module: str) -> int:
    try:
        command = importlib.import_module(f"lunshare.agent.{module}")
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing == "lunshare":
            raise
        print(
            f"{program}: the library {missing} is missing:"
            " pip install 'lunshare[daemon]' in this environment",
            file=sys.stderr,
        )
        return 1
    return int(command.main())
