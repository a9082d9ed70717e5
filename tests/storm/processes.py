# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a storm: the storage, and the daemon, which is started often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

ENTRY_POINTS = """\
[lunshare.drivers]
storm = storm_storage.driver:StormVolumes
[lunshare.targets]
storm = storm_storage.driver:StormTarget
"""


class Failed(Exception):
    """A process did not start, or ended by itself."""


def environment(work: Path, tree: Path) -> dict[str, str]:
    """Where both processes find lunshare, the drivers, and their entry points."""
    known = work / "site" / "storm_storage-1.dist-info"
    known.mkdir(parents=True, exist_ok=True)
    (known / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: storm-storage\nVersion: 1\n"
    )
    (known / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join(map(str, (tree, HERE, known.parent)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


class Storage:
    """The storage's process; it ends when this one does."""

    def __init__(self, work: Path, tree: Path, seed: int, delay: float) -> None:
        self.socket = str(work / "storage.sock")
        words = [sys.executable, "-m", "storm_storage.server"]
        self._log = (work / "storage.log").open("a")
        self._process = subprocess.Popen(
            [*words, self.socket, str(seed), str(delay)],
            cwd=tree,
            env=environment(work, tree),
            stdin=subprocess.PIPE,
            stderr=self._log,
        )
        deadline = time.monotonic() + 60
        while not os.path.exists(self.socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the storage did not start: see {self._log.name}")
            time.sleep(0.02)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)
        self._log.close()


class Daemon:
    """lunshared with one state path; ``start`` and ``kill`` as often as you like."""

    def __init__(self, work: Path, tree: Path, listen: str) -> None:
        self.starts, self._work, self._tree, self._listen = 0, work, tree, listen
        self.log: IO[str] = (work / "daemon.log").open("a")
        self._process: subprocess.Popen[Any] | None = None

    def start(self, config: Path) -> None:
        """Start it, and do not wait until it answers."""
        self.starts += 1
        state = str(self._work / "state")
        words = [
            sys.executable,
            "-m",
            "lunshare.agent.main",
            "--config-file",
            str(config),
        ]
        self.log.write(f"== start {self.starts} of the daemon\n")
        self.log.flush()
        self._process = subprocess.Popen(
            [*words, "--state-path", state, "--listen", self._listen],
            cwd=self._tree,
            env=environment(self._work, self._tree),
            stdout=self.log,
            stderr=self.log,
        )

    def kill(self) -> None:
        """Kill -9."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def ended(self) -> int | None:
        """The exit code, if it has ended by itself."""
        return self._process.poll() if self._process else None

    def stop(self, seconds: float) -> float:
        """SIGTERM; how long that took.

        :raises Failed: longer than so many seconds.
        """
        if self._process is None or self._process.poll() is not None:
            return 0.0
        began = time.monotonic()
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # its log gets every stack
            self._process.wait()
            raise Failed(f"SIGTERM did not end the daemon in {seconds:g} s") from None
        return time.monotonic() - began
