# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A machine without a disk: it starts from a LUN, as the node's lines of iPXE say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.cluster.cluster import NETWORK
from tests.lab.uml import build
from tests.lab.uml.guest import UmlGuest
from tests.stands.quick_guest import PREFIX, tap
from tests.stands.servers import ROOT

_IPXE = re.compile(
    r"set username (?P<username>\S+)\nset password (?P<password>\S+)\n"
    r"sanboot iscsi:(?P<portal>[^:]+)::(?P<port>\d+):0:(?P<target>\S+)"
)
_MEMORY = "mem=256M"


class Diskless(UmlGuest):
    """Its memory, its network card, and what it prints."""

    def __init__(self, name: str, number: int, directory: Path) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self.initiator = f"iqn.2026-11.com.example:{name}"
        network = f"{tap(name)}={self.address}/{PREFIX}"
        processor = min(os.sched_getaffinity(0))
        super().__init__(
            build.kernel(), [], directory, network=network, processor=processor
        )
        self._console, self._parameters = directory / "console", list[str]()
        directory.mkdir()
        self._link()

    def start(self, first: Path, ipxe: str) -> None:
        """Load ``first``, the initramfs, and start from the disk of these lines."""
        found = _IPXE.search(ipxe)
        assert found, ipxe
        values = {
            **found.groupdict(),
            "initiator": self.initiator,
            "own_address": f"{self.address}/{PREFIX}",
        }
        self._parameters = [f"{key}={value}" for key, value in values.items()]
        self._parameters += [f"initrd={first}", _MEMORY]
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        return [*super()._command(), *self._parameters]

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return self._console.read_text(errors="replace")

    def has_printed(self, text: str) -> bool:
        """Whether it has printed this. It prints until it ends."""
        if text in self.printed:
            return True
        assert self._process is not None
        assert self._process.poll() is None, self.printed
        return text in self.printed
