# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The one place with the versions of Tempest and Keystone.

Keystone 30.0.0 is of the same release as Cinder 29.0.0; Tempest 47.0.0 tests it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.stands import installed

PACKAGES = ("tempest==47.0.0", "keystone==30.0.0")


def venv(python: str = sys.executable) -> Path:
    """The venv with both, of this Python; installed once."""
    return installed.venv("tempest-here", PACKAGES, python)


def environ(**more: str) -> dict[str, str]:
    """An environment for its programs, without this repository on Python's path."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | more
