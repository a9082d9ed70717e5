# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which QEMU the guest runs in.

Debian 12's own is 7.2; 10.0 from its backports emulates twice as fast: `lvs` 0.20 s
instead of 0.45, `lvcreate` and `lvremove` of a thin volume 1.0 s instead of 2.6
(Debian 12 guest, TCG, 2 cores). It is unpacked into the cache and nothing is installed;
the libraries it needs are those of Debian's own.
"""

import re
from functools import partial
from pathlib import Path

from tests.lab import cache, host
from tests.lab.steps import LabError, say, sh, step

OWN = ["qemu-system-x86_64"]
FAST = 10
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


def command() -> list[str]:
    """How to start QEMU: this machine's own, or the faster one of its mirror."""
    mirror = host.backports()
    if int(version(OWN).partition(".")[0]) >= FAST or not mirror:
        return OWN
    inputs = [mirror, *PACKAGES, Path(__file__).read_text()]
    try:
        return _unpacked(cache.entry("qemu", inputs, partial(_fetch, mirror)))
    except LabError as error:
        say(f"no QEMU {FAST} from {mirror}: {str(error).splitlines()[-1]}")
        return OWN


def version(qemu: list[str]) -> str:
    """Such as 7.2.22."""
    found = re.search(r"version (\d+\.[0-9.]+)", sh([*qemu, "--version"]))
    if not found:
        raise LabError(f"{qemu[0]} does not tell its version")
    return found[1]


def _unpacked(out: Path) -> list[str]:
    share = out / "usr/share"
    return [
        str(out / "usr/bin/qemu-system-x86_64"),
        *("-L", str(share / "qemu"), "-L", str(share / "seabios")),
    ]


def _fetch(mirror: str, out: Path) -> None:
    with step(f"unpack QEMU {FAST} from Debian's backports (once)"):
        host.unpack([mirror], PACKAGES, out)
        version(_unpacked(out))
