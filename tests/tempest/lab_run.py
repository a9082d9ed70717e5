# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``make tempest-lab``: Tempest against the installed daemon, LVM and LIO.

All of it runs in a quick guest of the lab; this machine installs Tempest and Keystone,
creates Keystone's database, and lends the guest both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from tests.lab import borrow
from tests.stands import keystone
from tests.tempest import pins, tempest_run
from tests.tempest.environment import GUEST


def main(patterns: Sequence[str]) -> NoReturn:
    """Become a run of the lab; ``patterns`` as ``suite`` takes them."""
    venv = pins.venv(borrow.PYTHON)
    files = {
        GUEST.database: keystone.prepared(venv),
        GUEST.tests: tempest_run.listed(venv),
    }
    command = ["python", "-m", "tests.tempest.suite", "--lab", *patterns]
    borrow.become(command, {GUEST.venv: venv}, files)


if __name__ == "__main__":
    main(sys.argv[1:])
