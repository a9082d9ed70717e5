# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Doors to root for tests, without a helper beside them."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import HelperRefused
from lunshare.drivers.helper.commands import Commands

_EXEC_DIRS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


class NoRoot:
    """A door that stays shut: for drivers that need nothing of root."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        raise HelperRefused(" ".join(argv), "this door to root runs no commands")

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        raise HelperRefused(verb, "this door to root has no helper")


class OwnRoot(NoRoot):
    """Commands by whoever runs the tests, if the filters in a directory allow them.

    The rules are read and asked as the root helper does, so that a driver and its
    filters are tested together.
    """

    def __init__(self, filters: str) -> None:
        self._commands = Commands(filters, _EXEC_DIRS)

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        return self._commands.run(argv, timeout)
