# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Disks with a Python environment: what lunshare needs, and Cinder to compare with.

The wheels come from the host's pip, as it is configured. They are installed by the
guest's own Python in a copy of its system, at this machine's speed and without network.
"""

import configparser
import shutil
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.lab import cache, host
from tests.lab.image import filesystem
from tests.lab.steps import sh, step

DISK_BYTES = 4 << 30
FURTHER = {"cinder": ["cinder==29.0.0"]}  # what --with can ask for
INSTALL = """
set -eu
mount --bind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
chroot "$ROOT" python3 -m venv "/opt/$NAME"
chroot "$ROOT" "/opt/$NAME/bin/pip" install --quiet --no-index --find-links /wheels \
    --no-cache-dir --disable-pip-version-check --requirement /wheels/requirements.txt
"""


def lunshare(repository: Path, system: Path, python: Path) -> Path:
    """The disk for /opt/lunshare: all that setup.cfg names, but not lunshare itself."""
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg")
    wanted = setup["options"]["install_requires"]
    wanted += setup["options.extras_require"]["test"]
    return _disk("lunshare", wanted.split("\n"), system, python)


def further(name: str, system: Path, python: Path) -> Path:
    """The disk of one of FURTHER, as its own users install it."""
    return _disk(name, FURTHER[name], system, python)


def tools(repository: Path) -> Path:
    """A Python of the host with pip, lunshare's build backend, and pypa's installer."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    wanted = sorted({"pip", "installer", *project["build-system"]["requires"]})
    inputs = [Path(__file__).read_text(), *wanted]
    path = cache.entry("tools", inputs, lambda out: _build_tools(wanted, out))
    return path / "bin/python"


def _build_tools(requires: Sequence[str], out: Path) -> None:
    with step("install pip and the build backend for this machine (once)"):
        sh(["python3.11", "-m", "venv", out])
        sh([*_pip(out / "bin/python"), "install", "--upgrade", *requires])


def _pip(python: Path) -> list[object]:
    return [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _disk(name: str, requirements: Sequence[str], system: Path, python: Path) -> Path:
    lines = {line.strip() for line in requirements}
    wanted = sorted(line for line in lines if line and not line.startswith("#"))
    inputs = [Path(__file__).read_text(), *wanted]
    builder = partial(_build, name, wanted, system, python)
    return cache.entry(f"venv-{name}", inputs, builder) / "disk.raw"


def _build(
    name: str, requirements: Sequence[str], system: Path, python: Path, out: Path
) -> None:
    host.need_root("building the guest's Python environment")
    root = out / "root"
    wheels = root / "wheels"
    listed = wheels / "requirements.txt"
    with step(f"install what {name} needs of Python (once)"):
        root.mkdir()
        sh(["debugfs", "-R", f"rdump / {root}", system / "disk.raw"])
        wheels.mkdir()
        listed.write_text("\n".join(requirements) + "\n")
        sh([*_pip(python), "wheel", "-w", wheels, "-r", listed])
        _install(root, name)
        filesystem(root / "opt" / name, out / "disk.raw", DISK_BYTES, name)
        shutil.rmtree(root)


def _install(root: Path, name: str) -> None:
    """In mounts of its own, which end with it: `root` is removed afterwards."""
    env = {"ROOT": str(root), "NAME": name, "LC_ALL": "C.UTF-8", "PATH": host.PATH}
    alone = ["unshare", "--mount", "--propagation", "private"]
    sh([*alone, "sh", "-c", INSTALL], env=env)
