# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Root helpers for tests: they need no helper process."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import HelperRefused
from lunshare.helper.commands import Commands

_EXEC_DIRS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


class NoRoot:
    """Refuses every call, for drivers that do not use the root helper."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        raise HelperRefused(" ".join(argv), "NoRoot runs no commands")

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        raise HelperRefused(verb, "NoRoot has no verbs")


class OwnRoot(NoRoot):
    """Runs commands as the user who runs the tests, if the filters allow them.

    It reads and applies the filters of a directory as the root helper does, so that a
    driver and its filters are tested together.
    """

    def __init__(self, filters: str) -> None:
        self._commands = Commands(filters, _EXEC_DIRS)

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        return self._commands.run(argv, timeout)
