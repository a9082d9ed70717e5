# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Other projects' programs, each set in its own venv, installed once by pip.

The venvs are in the lab's cache (``tests/lab/cache.py``), so they survive
``make clean``, and runs of several worktrees share them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

from tests.lab import cache
from tests.lab.steps import sh, step

ROOT = Path(__file__).resolve().parents[2]


def required(extra: str = "") -> list[str]:
    """What lunshare itself needs: of an extra, or what pip always installs."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    if extra:
        return setup["options.extras_require"][extra].split()
    return setup["options"]["install_requires"].split()


def venv(name: str, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The directory of a venv with these packages; it is built if it is missing.

    ``python``: the interpreter of the venv.
    """

    def build(out: Path) -> None:
        with step(f"install {' '.join(packages)} (once)"):
            sh([python, "-m", "venv", out])
            pip = [out / "bin/python", "-m", "pip", "--quiet"]
            sh([*pip, "--disable-pip-version-check", "install", *packages])

    return cache.entry(name, [_version(python), *packages], build)


def _version(python: str) -> str:
    """Its ``sys.version``."""
    return sh([python, "-c", "import sys; print(sys.version, end='')"])
