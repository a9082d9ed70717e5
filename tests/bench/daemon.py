# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""lunshared on the fake backend, in a separate process, and its memory and CPU."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import process_costs
from tests.bench.http import Client

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Daemon:
    """A lunshared process with a state path.

    ``options`` are lines of [DEFAULT], and whole sections after them.
    """

    def __init__(self, state: Path, options: str = "") -> None:
        self.state = state
        self._options = state / "options.conf"
        self._options.write_text(f"[DEFAULT]\n{options}\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def __enter__(self) -> Daemon:
        lunshared = str(Path(sys.executable).with_name("lunshared"))
        files = (ROOT / "etc/fake.conf", HERE / "fake.conf", self._options)
        words = [f"--config-file={file}" for file in files]
        words += [f"--state-path={self.state}", f"--listen=127.0.0.1:{self.port}"]
        with open(self.state / "log", "ab") as log:
            self._process = subprocess.Popen(
                [lunshared, *words], stdout=log, stderr=log, env=_environment()
            )
        until = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"lunshared did not start: {self.state / 'log'}")
            time.sleep(0.05)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def memory(self) -> dict[str, float]:
        """VmRSS and VmHWM, in MiB."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text)
        return {name: int(kib) / 1024 for name, kib in found}

    def cpu(self) -> float:
        """Seconds of CPU it has used so far."""
        return process_costs.cpu([self._process.pid])

    def _answers(self) -> bool:
        try:
            Client(self.port)("GET", "/types")
        except OSError:
            return False
        return True


def _environment() -> dict[str, str]:
    """Our own environment with that of the daemon's unit, which limits its memory."""
    unit = (ROOT / "systemd/lunshared.service").read_text()
    lines = re.findall(r"^Environment=(\w+)=(.*)$", unit, re.M)
    return {**os.environ, **dict(lines)}
