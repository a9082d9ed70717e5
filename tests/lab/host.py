# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the lab needs from the machine it runs on: programs, Debian's mirror as this machine reaches it, a Python 3.11."""

import os
import shutil
import subprocess
from collections.abc import Iterable

from steps import LabError, sh, step

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "mmdebstrap": "mmdebstrap", "ssh": "openssh-client",
    "mke2fs": "e2fsprogs", "debugfs": "e2fsprogs", "zstd": "zstd", "git": "git", "setpriv": "util-linux",
    "tar": "tar", "python3.11": "python3.11-venv",
}


def need_root(what: str) -> None:
    if os.geteuid():
        raise LabError(f"{what} needs root, once; run the lab as root, afterwards the cached image serves this cache's owner")


def need_programs() -> None:
    """Install with apt what this machine misses."""
    missing = sorted({package for program, package in PROGRAMS.items() if not which(program)} | _python_without_venv())
    if not missing:
        return
    need_root(f"installing {' '.join(missing)}")
    with step(f"install {' '.join(missing)} on this machine"):
        sh(["apt-get", "-qq", "update"])
        sh(["apt-get", "-qq", "-y", "--no-install-recommends", "install", *missing],
           env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def which(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _python_without_venv() -> set[str]:
    python = which("python3.11")
    if not python:
        return set()
    works = subprocess.run([python, "-c", "import ensurepip"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return set() if works else {"python3.11-venv"}


def debian_sources() -> list[str]:
    """sources.list lines for bookworm as this machine is configured; empty (mmdebstrap's own) when it is no Debian 12."""
    wanted = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(CREATED_BY) $(ORIGIN)"
    listed = subprocess.run(["apt-get", "indextargets", "--format", wanted], text=True, stdout=subprocess.PIPE, check=False)
    return list(_bookworm(listed.stdout.splitlines()))


def _bookworm(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        uri, codename, component, kind, origin = line.split(" ", 4)
        if (kind, origin, component) == ("Packages", "Debian", "main") and codename.startswith("bookworm"):
            yield f"deb {uri} {codename} {component}"


def apt_options() -> list[str]:
    """How this machine's apt reaches its mirror (proxy, certificates, clock checks), for the guest's apt while it is built."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], text=True, stdout=subprocess.PIPE, check=False).stdout
    ours = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv")
    return [line.rstrip(";") for line in dump.splitlines() if line.startswith(ours)]
