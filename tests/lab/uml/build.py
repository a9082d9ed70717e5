# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the quick guest needs, in the lab's cache: its kernel, and its system disk."""

import shutil
from functools import partial
from pathlib import Path

from tests.lab import cache, host
from tests.lab.image import DISK_BYTES, filesystem
from tests.lab.steps import LabError, sh, step

HERE = Path(__file__).resolve().parent
# Linux 7.2, of Debian testing: the first whose processes trap by SECCOMP instead of
# ptrace (seccomp=on, guest.py). In the 6.12 of Debian 13 a system call takes 110 us
# instead of 57, an lvs 668 ms instead of 382 (docs/decisions/0019).
SUITE = "forky"
PACKAGES = ("user-mode-linux", "libc6")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
UNITS = "etc/systemd/system"
# Without QEMU there is no network card, no sshd, and no disk by a label.
MASKED = ("lab-network", "lab-ready", "ssh", "opt-lunshare.mount", "opt-cinder.mount")


def kernel() -> Path:
    """An entry with linux, its libraries in lib, modules/VERSION and xstate.so."""
    mirror = host.suite(SUITE)
    if mirror is None:
        raise LabError(
            "the quick guest needs a mirror of Debian in this machine's sources of apt;"
            " use --kernel 6.1"
        )
    inputs = [*PACKAGES, mirror, _text("xstate.c"), Path(__file__).read_text()]
    return cache.entry("uml", inputs, partial(_fetch, mirror))


def system(stock: Path, kernel: Path) -> Path:
    """The disk with the stock image's system, and with this kernel's modules."""
    inputs = [str(stock), str(kernel), _text("job"), _text("lab-job.service")]
    inputs.append(Path(__file__).read_text())
    entry = cache.entry("uml-system", inputs, partial(_build, stock, kernel))
    return entry / "disk.raw"


def packages(disk: Path) -> Path:
    """A copy of a disk of environment.py.

    UML locks its disks, and QEMU does not start with a disk that is locked. With a
    copy, both kinds of guests run at the same time.
    """
    return cache.entry("uml-venv", [str(disk)], partial(_copy, disk)) / "disk.raw"


def _copy(disk: Path, out: Path) -> None:
    with step("copy the packages for the quick guest (once)"):
        sh(["cp", "--sparse=always", disk, out / "disk.raw"])


def _text(name: str) -> str:
    return (HERE / name).read_text()


def _fetch(mirror: str, out: Path) -> None:
    with step("unpack the kernel of User-mode Linux (once)"):
        root = out / "root"
        host.unpack([mirror], PACKAGES, root)
        shutil.move(root / "usr/bin/linux.uml", out / "linux")
        shutil.move(root / "usr/lib/uml/modules", out / "modules")
        shutil.move(root / LIBRARIES, out / "lib")
        shutil.rmtree(root)
        compiler = ["cc", "-O2", "-shared", "-fPIC", "-Wall", "-Werror"]
        sh([*compiler, "-o", out / "xstate.so", HERE / "xstate.c"])


def _build(stock: Path, kernel: Path, out: Path) -> None:
    host.need_root("building the quick guest's disk")
    root = out / "root"
    with step("make the quick guest's disk (once)"):
        root.mkdir()
        sh(["debugfs", "-R", f"rdump / {root}", stock / "disk.raw"])
        version = _modules(kernel, root)
        sh(["depmod", "--basedir", root, version])
        _units(root)
        filesystem(root, out / "disk.raw", DISK_BYTES, "system")
        shutil.rmtree(root)


def _modules(kernel: Path, root: Path) -> str:
    versions = [path.name for path in (kernel / "modules").iterdir()]
    if len(versions) != 1:
        raise LabError(f"expected the modules of one kernel, not of {versions}")
    source = kernel / "modules" / versions[0]
    shutil.copytree(source, root / "lib/modules" / versions[0], symlinks=True)
    return versions[0]


def _units(root: Path) -> None:
    for name in MASKED:
        unit = root / UNITS / (name if "." in name else f"{name}.service")
        unit.unlink(missing_ok=True)
        unit.symlink_to("/dev/null")
    shutil.copy(HERE / "lab-job.service", root / UNITS)
    shutil.copy(HERE / "job", root / "usr/local/sbin/lab-job")
    wanted = root / UNITS / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "lab-job.service").symlink_to("../lab-job.service")
