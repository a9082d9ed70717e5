# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The peer: what Cinder 29.0.0 runs on its LVM node for one attach, on this kernel.

Its own ``create`` creates its targets, in one process of its own Python, to save a
start of Python for each. What is timed is what Cinder runs:
``cinder-rtstool add-initiator`` and ``cinder-rtstool save``, here without the
rootwrap that Cinder puts before both.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.bench.figures import timed

_BIN = Path("/opt/cinder/bin")
_IQN = "iqn.2010-10.org.openstack:volume-"
_INITIATOR = "iqn.1994-05.com.example:peer"
_CREATE = """
import sys
from cinder.cmd import rtstool
for line in sys.stdin:
    device, name = line.split()
    where = {"portals_ips": ["127.0.0.1"]}
    rtstool.create(device, name, "user", "secretsecret", "False", **where)
"""
_DELETE = """
import sys
from cinder.cmd import rtstool
for line in sys.stdin:
    rtstool.delete(line.split()[1])
"""


class Peer:
    """The peer's targets on this node, each over a loop device."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._targets: list[tuple[str, str]] = []
        Path("/etc/target").mkdir(exist_ok=True)

    def grow(self, count: int) -> None:
        """Create targets until there are ``count``."""
        new = [self._disk(n) for n in range(len(self._targets), count)]
        self._python(_CREATE, new)
        self._targets += new

    def attach(self) -> float:
        """Seconds to add an initiator to the first target and save; then remove it."""
        iqn = self._targets[0][1]
        took = timed(lambda: self._attach(iqn))
        self._run("delete-initiator", iqn, _INITIATOR)
        return took

    def close(self) -> None:
        """Remove all of it."""
        self._python(_DELETE, self._targets)
        for device, _ in self._targets:
            subprocess.run(["losetup", "-d", device], check=True)
        self._targets = []

    def _attach(self, iqn: str) -> None:
        self._run("add-initiator", iqn, "user", "secretsecret", _INITIATOR)
        self._run("save")

    def _disk(self, number: int) -> tuple[str, str]:
        path = self._directory / f"peer-{number}"
        with path.open("wb") as disk:
            disk.truncate(1024**2)
        words = ["losetup", "--find", "--show", str(path)]
        created = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE)
        return created.stdout.strip(), f"{_IQN}{number:08d}"

    def _python(self, program: str, targets: list[tuple[str, str]]) -> None:
        lines = "".join(f"{device} {iqn}\n" for device, iqn in targets)
        words = [str(_BIN / "python"), "-c", program]
        subprocess.run(words, check=True, text=True, input=lines)

    def _run(self, *words: str) -> None:
        subprocess.run(
            [str(_BIN / "cinder-rtstool"), *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
