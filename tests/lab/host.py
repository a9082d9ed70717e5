# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the lab needs from this machine: programs, Debian's mirror, a Python 3.11."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab import cache
from tests.lab.steps import LabError, sh, step

PROGRAMS = {
    "cc": "gcc libc6-dev",
    "debugfs": "e2fsprogs",
    "depmod": "kmod",
    "git": "git",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "patchelf": "patchelf",
    "python3.11": "python3.11-venv",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "tar": "tar",
    "taskset": "util-linux",
    "unshare": "util-linux",
    "zstd": "zstd",
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
# apt's settings for access to the mirror: proxy, certificates, clocks.
REACH = (
    "Acquire::http",
    "Acquire::https",
    "Acquire::Check-",
    "Acquire::Retries",
    "Acquire::ForceIPv",
)


def need_root(what: str) -> None:
    """Refuse other users; only a build needs root, a run does not."""
    if os.geteuid():
        raise LabError(f"{what} needs root: run the lab once as root")


def need_programs() -> None:
    """Install missing programs with apt, which runs once at a time (dpkg's lock).

    Also beside tests/debian, which has the same lock.
    """
    os.environ["PATH"] = PATH
    with cache.locked("programs"):
        if missing := _missing():
            _install(missing)


def _missing() -> list[str]:
    packages = {PROGRAMS[each] for each in PROGRAMS if not shutil.which(each)}
    if not packages and not _can_make_environments():
        packages = {"python3.11-venv"}
    return sorted(packages)


def _install(packages: list[str]) -> None:
    named = " ".join(packages)
    need_root(f"installing {named}")
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "-y", "--no-install-recommends", "install"]
    with step(f"install {named} on this machine"):
        sh(["apt-get", "-qq", "update"])
        sh([*install, *named.split()], env=quietly)


def _can_make_environments() -> bool:
    asked = ["python3.11", "-c", "import ensurepip, venv"]
    return subprocess.run(asked, stderr=subprocess.DEVNULL, check=False).returncode == 0


def debian_sources() -> list[str]:
    """Lines of sources.list for bookworm, as this machine's apt has them.

    Empty on another Debian release: mmdebstrap then uses its own.
    """
    fields = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(CREATED_BY) $(ORIGIN)"
    return list(_bookworm(_output(["apt-get", "indextargets", "--format", fields])))


def backports() -> str | None:
    """The line of sources.list for bookworm-backports."""
    return suite("bookworm-backports")


def suite(name: str) -> str | None:
    """The line of sources.list for a suite of Debian, from the mirror of bookworm."""
    for line in debian_sources():
        kind, uri, codename, component = line.split()
        if codename == "bookworm":
            return f"{kind} {uri} {name} {component}"
    return None


def unpack(sources: Sequence[str], packages: Sequence[str], out: Path) -> None:
    """Download packages from these lines of sources.list; unpack them in ``out``."""
    lists, source = out / "lists", out / "sources.list"
    for each in (lists, out / "archives"):
        (each / "partial").mkdir(parents=True)
    signed = [
        line.replace("deb ", f"deb [signed-by={KEYRING}] ", 1) for line in sources
    ]
    source.write_text("\n".join(signed) + "\n")
    options = [
        f"Dir::Etc::sourcelist={source}",
        "Dir::Etc::sourceparts=/nonexistent",
        f"Dir::State::lists={lists}",
        f"Dir::Cache={out}",
        *([] if os.geteuid() else ["APT::Sandbox::User=root"]),
    ]
    apt = ["apt-get", "-qq", *(f"-o{each}" for each in options)]
    sh([*apt, "update"])
    sh([*apt, "download", *packages], cwd=out)
    for package in out.glob("*.deb"):
        sh(["dpkg-deb", "--extract", package, out])
        package.unlink()


def _bookworm(listed: str) -> Iterator[str]:
    for line in listed.splitlines():
        uri, codename, component, kind, origin = line.split(" ", 4)
        is_main = (component, kind, origin) == ("main", "Packages", "Debian")
        if is_main and codename.startswith("bookworm"):
            yield f"deb {uri} {codename} {component}"


def apt_options() -> list[str]:
    """How this machine's apt reaches its mirror, for the apt that fills the guest."""
    lines = _output(["apt-config", "dump", "Acquire"]).splitlines()
    return [line.rstrip(";") for line in lines if line.startswith(REACH)]


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, check=False)
    return done.stdout
