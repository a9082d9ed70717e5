# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Cinder 29.0.0 as pip installs it, and the commands that start its programs."""

from __future__ import annotations

import functools
from pathlib import Path

from tests import installed
from tests.installed import required
from tests.lab.environment import FURTHER

SCHEDULER = "from cinder.cmd.scheduler import main; main()"
MANAGE = "from cinder.cmd.manage import main; main()"
# Beside it: a WSGI server and MariaDB's client, and what lunshare's drivers need
# (tests/fleet): pip finds versions that both allow.
_BESIDE = ["pyuwsgi>=2.0.30", "PyMySQL>=1.1", *required()]


@functools.cache
def python() -> Path:
    """A Python with Cinder, installed once, in the lab's cache."""
    return installed.venv("cinder-here", [*FURTHER["cinder"], *_BESIDE]) / "bin/python"


def command(program: str, config: Path, *more: str) -> list[str]:
    """The words that start one of its programs with this configuration file."""
    words = [str(python()), "-W", "ignore", "-c", program]
    return [*words, "--config-file", str(config), *more]


if __name__ == "__main__":
    python()
