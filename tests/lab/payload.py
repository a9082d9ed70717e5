# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is carried into the guest for one run: the working tree, lunshare installed from its wheel, the set-up script."""

import shutil
import subprocess
import tarfile
from pathlib import Path

from steps import sh

HERE = Path(__file__).resolve().parent


def gather(repository: Path, out: Path) -> None:
    shutil.copy(HERE / "provision", out)
    with tarfile.open(out / "tree.tar", "w") as tar:
        for name in tracked(repository):
            tar.add(repository / name, arcname=name, filter=_root)


def tracked(repository: Path) -> list[str]:
    """Every file that is or could be committed, as it is now."""
    listed = sh(["git", "-C", str(repository), "ls-files", "-coz", "--exclude-standard"])
    return [name for name in listed.split("\0") if name and (repository / name).exists()]


def _root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
