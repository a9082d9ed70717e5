# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Set up logging: oslo.log, with each error once."""

from __future__ import annotations

import logging

from oslo_config import cfg
from oslo_log import formatters, log

_QUIET = ["alembic=WARN", "sqlalchemy=WARN", "stevedore=WARN"]


class Formatter(formatters.ContextFormatter):
    """The formatter of oslo.log, without the second copy of an error.

    oslo.log adds the exception that is being handled to every warning (8.0,
    formatters._get_error_summary). The messages of lunshare contain it already.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and a traceback if the record asks for one."""
        line: str = super().format(record)
        if record.exc_info:
            return line
        return line.removesuffix(f": {getattr(record, 'error_summary', '')}")


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.log."""
    log.register_options(conf)
    log.set_defaults(default_log_levels=_QUIET)


def setup(conf: cfg.ConfigOpts) -> None:
    """Log as the options require. They must be registered and read."""
    log.setup(conf, "lunshare")
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, formatters.ContextFormatter):
            datefmt = conf.log_date_format
            handler.setFormatter(Formatter(config=conf, datefmt=datefmt))
