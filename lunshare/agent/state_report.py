# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""SIGUSR2 writes a report of what the daemon does now, as a service of Cinder does.

It is what oslo.reports calls a Guru Meditation Report: version, stacks of all threads,
the process, and the options, whose secrets are hidden. It goes to stderr, so into the
journal. The sections are put together here, because the ready-made report of
oslo.reports imports greenlet where that is installed, which the daemon must not.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from importlib.metadata import version
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log

LOG = log.getLogger(__name__)

_TITLE = "Guru Meditation"


class _Package:
    """The names by which the report asks for a version."""

    def vendor_string(self) -> str:
        """Return who makes it."""
        return "The lunshare authors"

    def product_string(self) -> str:
        """Return the name of the program."""
        return "lunshared"

    def version_string_with_package(self) -> str:
        """Return its version."""
        return version("lunshare")


def write_at_signal(conf: cfg.ConfigOpts) -> None:
    """Write a report at each SIGUSR2 from now on. Call it in the main thread."""
    signal.signal(signal.SIGUSR2, lambda _number, frame: _write(conf, frame))


def _write(conf: cfg.ConfigOpts, frame: FrameType | None) -> None:
    try:
        report = text(conf, frame)
    except Exception:
        LOG.exception("[main] no report of the daemon could be made")
        return
    print(report, file=sys.stderr, flush=True)


def text(conf: cfg.ConfigOpts, frame: FrameType | None = None) -> str:
    """Return the report. ``frame``: where the signal interrupted the main thread."""
    # Imported when it is needed: jinja2 is large, and most daemons never write one.
    report = import_module("oslo_reports.report")
    sections: dict[str, tuple[str, str, Any]] = {
        "Package": ("version", "PackageReportGenerator", (_Package(),)),
        "Threads": ("threading", "ThreadReportGenerator", (frame,)),
        "Processes": ("process", "ProcessReportGenerator", ()),
        "Configuration": ("conf", "ConfigReportGenerator", (conf,)),
    }
    whole = report.TextReport(_TITLE)
    for name, (module, generator, arguments) in sections.items():
        generators = import_module(f"oslo_reports.generators.{module}")
        whole.add_section(name, getattr(generators, generator)(*arguments))
    return str(whole.run())
