# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""QEMU's control socket (QMP): one JSON object per line each way."""

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

from tests.lab.steps import LabError


class Monitor:
    """A connection to one QEMU."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._answer("greeting")
        self.ask("qmp_capabilities")

    def close(self) -> None:
        """Close the connection; QEMU still runs."""
        self._lines.close()
        self._socket.close()

    def ask(self, command: str, **arguments: object) -> Any:
        """The answer to one command."""
        asked = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(asked).encode() + b"\n")
        return self._answer(command)

    def human(self, line: str) -> str:
        """The answer to a command of the human monitor, which has more commands."""
        return str(self.ask("human-monitor-command", **{"command-line": line}))

    def forward_ssh(self) -> int:
        """Forward a free port of the host's loopback to the guest's sshd."""
        self.human("hostfwd_add net tcp:127.0.0.1:0-:22")
        forward = r"HOST_FORWARD.* 127\.0\.0\.1 +(\d+) "
        found = re.search(forward, self.human("info usernet"))
        if not found:
            raise LabError("QEMU opened no port for ssh")
        return int(found[1])

    def plug(self, drive: str, name: str) -> None:
        """Add a disk to a guest that runs or is starting."""
        answer = self.human(f"drive_add 0 {drive}").strip()
        if answer != "OK":
            raise LabError(f"QEMU could not open a disk: {answer}")
        self.ask("device_add", driver="virtio-blk-pci", drive=name, id=f"virtio-{name}")

    def save(self, state: Path) -> None:
        """Stop the guest and write its memory and devices to a file."""
        self.ask("stop")
        self.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.ask("migrate", uri=f"exec:cat > '{state}'")
        while (status := self.ask("query-migrate")["status"]) != "completed":
            if status in ("failed", "cancelled"):
                raise LabError(f"QEMU could not write the guest's state: {status}")
            time.sleep(0.05)

    def loaded(self) -> bool:
        """Whether QEMU has read its saved state; the guest is still stopped."""
        return bool(self.ask("query-status")["status"] != "inmigrate")

    def _answer(self, command: str) -> Any:
        for line in self._lines:
            message = json.loads(line)
            if "error" in message:
                raise LabError(f"QEMU refused {command}: {message['error']['desc']}")
            if "return" in message or "QMP" in message:
                return message.get("return")
        raise LabError(f"QEMU ended during {command}")
