# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""lunshared on the fake backend, in a separate process, and its memory and CPU."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench import process_costs
from tests.stands.daemon import FAKE, Lunshared
from tests.stands.servers import ROOT

HERE = Path(__file__).resolve().parent


class Daemon(Lunshared):
    """A lunshared process with a state path.

    ``options`` are lines of [DEFAULT], and whole sections after them.
    """

    def __init__(self, path: Path, options: str = "") -> None:
        files = (FAKE, HERE / "fake.conf")
        super().__init__(path, f"[DEFAULT]\n{options}\n", *files)

    def __enter__(self) -> Daemon:
        self.start(**_environment())
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def memory(self) -> dict[str, float]:
        """VmRSS and VmHWM, in MiB."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text)
        return {name: int(kib) / 1024 for name, kib in found}

    def cpu(self) -> float:
        """Seconds of CPU it has used so far."""
        return process_costs.cpu([self.pid])


def _environment() -> dict[str, str]:
    """The environment of the daemon's unit, which limits its memory."""
    unit = (ROOT / "systemd/lunshared.service").read_text()
    lines = re.findall(r"^Environment=(\w+)=(.*)$", unit, re.M)
    return dict(lines)
