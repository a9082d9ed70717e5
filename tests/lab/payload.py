# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What one run copies into the guest: the working tree, and lunshare's wheel.

The wheel is also installed here, into an archive laid out as the guest's /opt/lunshare:
entry points, RECORD and byte code as pip makes them, in 1 s instead of 30 s under TCG.
"""

import shutil
import tarfile
from pathlib import Path

from tests.lab.steps import LabError, sh

HERE = Path(__file__).resolve().parent
INSTALL = """
import sys
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

wheel, stage = sys.argv[1:]
home = "/opt/lunshare"
packages = f"{home}/lib/python3.11/site-packages"
scheme = {"purelib": packages, "platlib": packages, "headers": f"{home}/include"}
scheme |= {"scripts": f"{home}/bin", "data": home}
to = SchemeDictionaryDestination(
    scheme,
    interpreter=f"{home}/bin/python",
    script_kind="posix",
    bytecode_optimization_levels=[0],
    destdir=stage,
)
with WheelFile.open(wheel) as source:
    install(source=source, destination=to, additional_metadata={"INSTALLER": b"pip"})
"""


def tree(repository: Path, out: Path) -> None:
    """tree.tar: every file that is or could be committed, as it is now."""
    with tarfile.open(out / "tree.tar", "w") as archive:
        for name in _files(repository):
            archive.add(repository / name, arcname=name, filter=_owned_by_root)


def scripts(out: Path) -> None:
    """The scripts that set up the guest, and the node's configuration."""
    for name in ("provision", "lunshare.conf"):
        shutil.copy(HERE / name, out)


def package(python: Path, out: Path) -> None:
    """The wheel of the tree in tree.tar, and installed.tar: what it installs."""
    source, stage = out / "source", out / "stage"
    source.mkdir()
    # Not extractall: Python 3.12 wants the argument `filter`, 3.11.2 has none.
    sh(["tar", "--extract", "--file", out / "tree.tar", "--directory", source])
    build = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    sh([*build, *offline, "-w", out, source])
    wheels = list(out.glob("*.whl"))
    if len(wheels) != 1:
        raise LabError(f"expected one wheel of the project, not {wheels}")
    sh([python, "-c", INSTALL, wheels[0], stage])
    with tarfile.open(out / "installed.tar", "w") as archive:
        archive.add(stage / "opt/lunshare", arcname=".", filter=_owned_by_root)
    shutil.rmtree(source)
    shutil.rmtree(stage)


def _files(repository: Path) -> list[str]:
    found = sh(["git", "-C", repository, "ls-files", "-coz", "--exclude-standard"])
    names = sorted({name for name in found.split("\0") if name})
    return [name for name in names if _carried(repository / name)]


def _carried(path: Path) -> bool:
    """Whether git's file exists: a regular file, or a link to a folder."""
    return path.is_symlink() or path.is_file()


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
