# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's hosts: real initiators (libiscsi), each under a name of its own.

One machine plays them all; the target tells hosts apart by initiator name and
CHAP secret, not by address. No secret is printed or put on a command line.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lunshare.drivers.values import Auth
from tests.system.lio_hosts import BLOCK, LoginRefused, Session

SHARED = 1024**2  # bytes that alpha writes and the others read, from block 0
_CHUNK = 64 * 1024
_AREA = SHARED // BLOCK  # where the steady I/O goes: behind the shared bytes
FORBIDDEN = 0x0202  # RFC 7143 section 11.13.5: authorization failure


class Host:
    """One host: its initiator name, and what the API told it of the volume."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.initiator = f"iqn.1994-05.com.example:demo-{name}"
        self.attachment = ""
        self.mode = ""
        self.told: dict[str, Any] = {}
        self.session: Session | None = None

    @property
    def connector(self) -> dict[str, str]:
        """What the host says of itself when it attaches."""
        return {"initiator": self.initiator, "host": self.name, "ip": "127.0.0.1"}

    def log_in(self, told: dict[str, Any] | None = None) -> Session:
        """Log in with what this host was told, or with what another one was."""
        told = self.told if told is None else told
        auth = None
        if "auth_username" in told:
            auth = Auth(told["auth_username"], told["auth_password"])
        portal = told["target_portal"]
        return Session(self.initiator, told["target_iqn"], portal, auth)

    def live(self) -> Session:
        """The session that this host keeps."""
        if self.session is None:
            self.session = self.log_in()
        return self.session

    def leave(self) -> None:
        """Log out, if it is in."""
        if self.session is not None:
            self.session.logout()
            self.session = None

    def write(self, data: bytes) -> None:
        """Write the shared bytes."""
        for at in range(0, len(data), _CHUNK):
            self.live().write(at // BLOCK, data[at : at + _CHUNK])

    def read(self) -> bytes:
        """Read the shared bytes."""
        count = _CHUNK // BLOCK
        starts = range(0, SHARED // BLOCK, count)
        return b"".join(self.live().read(start, count) for start in starts)

    def qemu(self) -> str:
        """What qemu-io says when it opens the volume for writing as this host."""
        with tempfile.TemporaryDirectory() as directory:
            secret = Path(directory, "chap")
            secret.touch(mode=0o600)
            secret.write_text(self.told.get("auth_password", ""))
            words = {
                "driver": "iscsi",
                "transport": "tcp",
                "portal": self.told["target_portal"],
                "target": self.told["target_iqn"],
                "lun": "0",
                "initiator-name": self.initiator,
                "user": self.told.get("auth_username", ""),
                "password-secret": "chap",
            }
            options = ",".join(f"{key}={value}" for key, value in words.items())
            line = ["qemu-io", "--object", f"secret,id=chap,file={secret}"]
            line += ["--image-opts", options, "-c", "write 0 512"]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()


def status(refused: LoginRefused) -> int:
    """The login status in libiscsi's sentence: class and detail, two bytes."""
    found = re.search(r"\((\d+)\)", str(refused))
    return int(found[1]) if found else -1


class Pulse:
    """One host's I/O without a pause, on blocks of its own, until ``stop``."""

    def __init__(self, host: Host, writes: bool) -> None:
        self.host, self._count, self._longest = host, 0, 0.0
        self.error: Exception | None = None
        self._session, self._writes = host.live(), writes
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; ``error`` says what it met."""
        self._stop.set()
        self._thread.join()

    def past(self, count: int) -> Callable[[], bool]:
        """Whether it has done that many more since the last mark, or will not."""
        return lambda: self._count >= count or self.error is not None

    def mark(self) -> tuple[int, float]:
        """I/Os since the last mark, and the seconds of the slowest."""
        with self._lock:
            done = self._count, self._longest
            self._count, self._longest = 0, 0.0
        return done

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._once()
            except Exception as error:
                self.error = error
                return
            with self._lock:
                self._longest = max(self._longest, time.monotonic() - began)
                self._count += 1

    def _once(self) -> None:
        if self._writes:
            data = os.urandom(BLOCK)
            self._session.write(_AREA, data)
            if self._session.read(_AREA) != data:
                raise OSError("it read back other bytes than it wrote")
        else:
            self._session.read(_AREA)
