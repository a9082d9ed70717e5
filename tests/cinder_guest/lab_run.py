# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command in a quick guest that has Cinder 29.0.0 and what it needs.

    python -m tests.cinder_guest.lab_run CMD...

Cinder and Glance come with pip, once, into the lab's cache. MariaDB and RabbitMQ are
Debian's, as this machine has them installed: the guest borrows them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.cinder_guest.node import CINDER, CONFIGURATION, GLANCE
from tests.fleet_nodes import glance
from tests.lab import borrow
from tests.stands.cinder_programs import python

_FOLDERS = ("/usr/lib/erlang", "/usr/lib/rabbitmq", "/usr/share/mysql")
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu")


def main(words: Sequence[str]) -> NoReturn:
    """Become a run of the lab."""
    venv = python().parents[1]
    files = {Path(folder): Path(folder) for folder in _FOLDERS}
    files[CONFIGURATION] = venv / "etc/cinder"
    files[GLANCE / "etc"] = glance.venv() / "etc"
    venvs = {CINDER: venv, GLANCE: glance.venv()}
    borrow.become(words, venvs, files, _PROGRAMS)


if __name__ == "__main__":
    main(sys.argv[1:])
