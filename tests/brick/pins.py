# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The one place with the versions of brick-cinderclient-ext and what it uses.

Its netifaces is compiled by pip: this needs a C compiler and Python's headers.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.pins import CINDERCLIENT
from tests.lab import borrow
from tests.stands import installed

BRICK = "python-brick-cinderclient-ext==2.8.0"
OS_BRICK = "os-brick==7.1.1"

#: Where a guest has the packages.
GUEST = Path("/opt/brick")


def venv() -> Path:
    """The venv of this machine that is lent to the guest, installed once."""
    packages = (BRICK, CINDERCLIENT, OS_BRICK)
    return installed.venv("brick-here", packages, borrow.PYTHON)
