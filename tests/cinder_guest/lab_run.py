# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command in a quick guest that has a Cinder 29.0.0, MariaDB and RabbitMQ.

    python -m tests.cinder_guest.lab_run CMD...

Cinder comes with pip, once, into the lab's cache. MariaDB and RabbitMQ are Debian's, as
this machine has them installed: the guest borrows them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.cinder_guest.node import CINDER, CONFIGURATION
from tests.cinder_programs import python
from tests.lab import borrow

_FOLDERS = ("/usr/lib/erlang", "/usr/lib/rabbitmq", "/usr/share/mysql")
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu")


def main(words: Sequence[str]) -> NoReturn:
    """Become a run of the lab."""
    venv = python().parents[1]
    files = {Path(folder): Path(folder) for folder in _FOLDERS}
    files[CONFIGURATION] = venv / "etc/cinder"
    borrow.become(words, {CINDER: venv}, files, _PROGRAMS)


if __name__ == "__main__":
    main(sys.argv[1:])
