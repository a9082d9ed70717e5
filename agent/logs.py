# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logging to stderr, each error once."""

from __future__ import annotations

import logging

from oslo_config import cfg
from oslo_log import formatters, log

_QUIET = ["alembic=WARN", "sqlalchemy=WARN", "stevedore=WARN"]


class Formatter(formatters.ContextFormatter):
    """As oslo.log's, without the second copy of an error.

    oslo.log puts the exception that is being handled behind every warning (8.0,
    formatters._get_error_summary). Our sentences have its text in them already.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback, where one was asked for, behind it."""
        line: str = super().format(record)
        if record.exc_info:
            return line
        return line.removesuffix(f": {getattr(record, 'error_summary', '')}")


def setup(conf: cfg.ConfigOpts) -> None:
    """Log as the options say; they must be registered and read."""
    log.set_defaults(default_log_levels=_QUIET)
    log.setup(conf, "lunshare")
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, formatters.ContextFormatter):
            datefmt = conf.log_date_format
            handler.setFormatter(Formatter(config=conf, datefmt=datefmt))
