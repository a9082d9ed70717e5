# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Requests a second, counted by wrk: a C program with 32 connections.

A load generator in Python would take from the server the core it is measured on.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.bench.http import HEADERS

CLIENTS = 32
# The peer needs seconds where many ask it for a long list.
_TIMEOUT = 120


class Server(Protocol):
    """What is measured: our daemon, or the peer."""

    state: Path
    port: int

    def cpu(self) -> float:
        """Seconds of CPU used so far."""


def wrk(
    server: Server, path: str, more: Sequence[str], seconds: int
) -> tuple[float, float]:
    """Requests a second, and CPU milliseconds of the server for one.

    Scripts find its volumes in the files ``ids`` and ``shared`` of its state path.
    Raises RuntimeError when a request was refused.
    """
    words = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}", f"--timeout={_TIMEOUT}"]
    words += [*more, f"http://127.0.0.1:{server.port}{path}"]
    for name, value in HEADERS.items():
        words += ["-H", f"{name}: {value}"]
    files = {"IDS": "ids", "SHARED": "shared"}
    env = {name: str(server.state / file) for name, file in files.items()}
    env["TOKEN"] = HEADERS["X-Auth-Token"]
    before = server.cpu()
    ran = subprocess.run(
        words, check=True, text=True, stdout=subprocess.PIPE, env={**os.environ, **env}
    )
    used = server.cpu() - before
    count = int(_number(r"(\d+) requests in", ran.stdout))
    if "Non-2xx" in ran.stdout or not count or _broken(ran.stdout, more):
        raise RuntimeError(ran.stdout)
    return _number(r"Requests/sec:\s+([\d.]+)", ran.stdout), used * 1000 / count


def _broken(output: str, more: Sequence[str]) -> bool:
    """Whether connections failed. uWSGI closes one that the client wants closed without
    saying so in its answer; wrk counts the complete answer, and a read error."""
    if "Connection: close" in more:
        output = re.sub(r"connect 0, read \d+, write 0, timeout 0", "", output)
        return re.search(r"Socket errors: \w", output) is not None
    return "Socket errors" in output


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(text)
    return float(found[1])
