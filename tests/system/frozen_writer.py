# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host in a process of its own, so that a test can freeze it in the middle of I/O.

``python -m tests.system.frozen_writer NAME BLOCK``. Each line of its input is a
connection_info. It logs in and writes 0, 1, 2 ... to the block, until a write fails.
Its output then has the last number whose write was answered, or that the login was
refused.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.system.hosts import Host, Info, block
from tests.system.lio_hosts import LoginRefused


class FrozenWriter:
    """The process, as a test drives it."""

    def __init__(self, name: str, at: int, prefix: Sequence[str] = ()) -> None:
        """``prefix``: the words of a command that starts it in another place."""
        module = ("-m", "tests.system.frozen_writer", name, str(at))
        command = [*prefix, sys.executable, *module]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def begin(self, info: Info, isid: int | None = None) -> None:
        """Let it log in and write."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**info, "isid": isid}) + "\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """Stop it between two instructions, as a host that hangs."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> dict[str, Any]:
        """How its writing has ended; waits for that."""
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def kill(self) -> None:
        """End the process."""
        with self._process:
            self._process.kill()


def _write(host: Host, info: Mapping[str, Any], at: int) -> dict[str, object]:
    host.isid = info["isid"]
    try:
        session = host.login(info)
    except LoginRefused:
        return {"refused": True}
    acknowledged = -1
    try:
        while True:
            session.write(at, block(str(acknowledged + 1)))
            acknowledged += 1
    except Exception as error:
        return {"acknowledged": acknowledged, "error": str(error)}
    finally:
        host.leave()


def main() -> None:
    """Serve the lines of the input."""
    host = Host(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(_write(host, json.loads(line), int(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
