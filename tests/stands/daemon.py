# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon as a separate process, on the fake backend or another file's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "etc" / "fake.conf"

DAEMON = [sys.executable, "-m", "lunshare.agent.main"]


def start(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    log: IO[str] | None = None,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DAEMON, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=log,
        stderr=subprocess.PIPE if log is None else log,
        text=True,
    )


def refused(*arguments: str | Path) -> str:
    """Return its last line; it must end by itself, with exit code 1."""
    process = start(*arguments)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    last: str = stderr.strip().splitlines()[-1]
    return last


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answered(url: str, process: subprocess.Popen[str]) -> str:
    """Return the answer of the URL, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=5) as response:
                return str(response.read().decode())
        except URLError:
            time.sleep(0.05)
    raise AssertionError(f"{url} never answered")


@contextmanager
def daemon(state: Path, *files: Path):
    listen = f"127.0.0.1:{free_port()}"
    words = [f"--config-file={file}" for file in (FAKE, *files)]
    process = start(*words, "--state-path", state, "--listen", listen)
    try:
        yield process, f"http://{listen}", state
    finally:
        process.terminate()
        process.communicate(timeout=60)
