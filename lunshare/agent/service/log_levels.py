# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The levels of the loggers of this process, which a request may change.

Only lunshare's own loggers: at DEBUG, those of libraries write what they are given,
such as the credentials in SQL parameters.
"""

from __future__ import annotations

import logging

from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.records import RequestContext

#: The start of the names of lunshare's loggers.
ROOT = "lunshare"

LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")


class LogLevels:
    """The levels of this process, until it ends."""

    def set(self, ctx: RequestContext, prefix: str, level: str) -> None:
        """Set the level of every logger whose name starts with ``prefix``.

        Without a prefix: of all of lunshare's.

        :raises Invalid: the prefix is not one of lunshare's, or the level unknown.
        """
        if level.upper() not in LEVELS:
            raise Invalid(f"level: give one of {', '.join(LEVELS)}.")
        for logger in self._loggers(prefix):
            logger.setLevel(level.upper())

    def get(self, ctx: RequestContext, prefix: str) -> dict[str, str]:
        """Return the level of each logger whose name starts with ``prefix``.

        :raises Invalid: the prefix is not one of lunshare's.
        """
        return {
            logger.name: logging.getLevelName(logger.getEffectiveLevel())
            for logger in self._loggers(prefix)
        }

    def _loggers(self, prefix: str) -> list[logging.Logger]:
        start = prefix or ROOT
        if start != ROOT and not start.startswith(f"{ROOT}."):
            raise Invalid(f"prefix: give {ROOT}, or a part of it such as {ROOT}.agent.")
        names = [n for n in logging.root.manager.loggerDict if n.startswith(start)]
        names = sorted({start.rstrip("."), *names})
        return [logging.getLogger(name) for name in names]
