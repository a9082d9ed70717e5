# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""In a quick guest: use folders of the host, read-only, and run a command.

    python -m tests.lab.borrow [--packages AT=FROM] [--files AT=FROM]
        [--missing FOLDER] -- CMD

The quick guest does not reach the internet, but it can mount folders of the host
(hostfs). FROM is one, AT is where it appears. ``--packages``: FROM is a site-packages
that the host's pip filled; at AT is then a venv with them, of the guest's own Python.
Packages with compiled parts work in every Python 3.11, so the host's must be that.
``--missing``: FOLDER of the guest shows also what only the host has in it, such as
programs of /usr/bin with their libraries. The host must be the same Debian as the
guest.
"""

from __future__ import annotations

import argparse
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tests.lab.steps import sh

#: The Python of the host whose pip fills packages for the guest.
PYTHON = "python3.11"


def become(
    command: Sequence[str],
    venvs: Mapping[Path, Path],
    files: Mapping[Path, Path] = types.MappingProxyType({}),
    missing: Sequence[str] = (),
) -> NoReturn:
    """On the host: become a run of the command in a quick guest.

    ``venvs``, ``files``: what the guest has at a path, and where it is on the host.
    The host's venvs are of ``PYTHON``. ``missing``: folders of both, see above.
    """
    words = [f"--packages={at}={_packages(venv)}" for at, venv in venvs.items()]
    words += [f"--files={at}={folder}" for at, folder in files.items()]
    words += [f"--missing={folder}" for folder in missing]
    lab = [str(Path(__file__).with_name("run")), "--kernel", "uml", "--"]
    lab += ["python", "-m", "tests.lab.borrow", *words, "--"]
    os.execv(lab[0], [*lab, *command])


def _packages(venv: Path) -> Path:
    return venv / "lib" / PYTHON / "site-packages"


def main(words: Sequence[str]) -> None:
    """Mount, then become the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, shown in (
        ("--packages", "AT=FROM"),
        ("--files", "AT=FROM"),
        ("--missing", "FOLDER"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=shown)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(words)
    for given in options.files:
        at, _, origin = given.partition("=")
        _mount(Path(at), origin)
    for given in options.packages:
        at, _, origin = given.partition("=")
        sh([sys.executable, "-m", "venv", "--without-pip", at])
        _mount(_packages(Path(at)), origin)
    for folder in options.missing:
        below = Path("/run/borrowed") / folder.strip("/")
        _mount(below, folder)
        layers = f"lowerdir={folder}:{below}"
        sh(["mount", "-t", "overlay", "-o", layers, "overlay", folder])
    os.execvp(options.command[0], options.command)


def _mount(at: Path, origin: str) -> None:
    at.mkdir(parents=True, exist_ok=True)
    sh(["mount", "-t", "hostfs", "-o", f"ro,{origin}", "none", at])


if __name__ == "__main__":
    main(sys.argv[1:])
