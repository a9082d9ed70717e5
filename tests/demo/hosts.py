# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's hosts: real initiators (libiscsi), each with its own name.

One machine acts as all of them: the target identifies hosts by initiator name and
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
_AREA = SHARED // BLOCK  # start of the steady I/O: after the shared bytes
#: RFC 7143 section 11.13.5: authentication and authorization failure. A
#: detach leaves an empty ACL until the next reconcile (docs/decisions/0049), which
#: refuses every login, with the first of these.
REFUSALS = (0x0201, 0x0202)


class Host:
    """One host: its initiator name, and its connection_info from the API."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.initiator = f"iqn.1994-05.com.example:demo-{name}"
        self.attachment = ""
        self.mode = ""
        self.info: dict[str, Any] = {}
        self.session: Session | None = None

    @property
    def connector(self) -> dict[str, str]:
        """The connector of the host."""
        return {"initiator": self.initiator, "host": self.name, "ip": "127.0.0.1"}

    def log_in(self, info: dict[str, Any] | None = None) -> Session:
        """Log in with the connection_info of this host, or of another one."""
        info = self.info if info is None else info
        auth = None
        if "auth_username" in info:
            auth = Auth(info["auth_username"], info["auth_password"])
        portal = info["target_portal"]
        return Session(self.initiator, info["target_iqn"], portal, auth)

    def live(self) -> Session:
        """The open session of this host."""
        if self.session is None:
            self.session = self.log_in()
        return self.session

    def leave(self) -> None:
        """Log out, if it is logged in."""
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
        """The output of qemu-io when it opens the volume for writing as this host."""
        with tempfile.TemporaryDirectory() as directory:
            secret = Path(directory, "chap")
            secret.touch(mode=0o600)
            secret.write_text(self.info.get("auth_password", ""))
            words = {
                "driver": "iscsi",
                "transport": "tcp",
                "portal": self.info["target_portal"],
                "target": self.info["target_iqn"],
                "lun": "0",
                "initiator-name": self.initiator,
                "user": self.info.get("auth_username", ""),
                "password-secret": "chap",
            }
            options = ",".join(f"{key}={value}" for key, value in words.items())
            line = ["qemu-io", "--object", f"secret,id=chap,file={secret}"]
            line += ["--image-opts", options, "-c", "write 0 512"]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()


def status(refused: LoginRefused) -> int:
    """The login status in libiscsi's error text: class and detail, two bytes."""
    found = re.search(r"\((\d+)\)", str(refused))
    return int(found[1]) if found else -1


class Pulse:
    """One host's I/O without a pause, on its own blocks, until ``stop``."""

    def __init__(self, host: Host, writes: bool) -> None:
        self.host, self._count, self._longest = host, 0, 0.0
        self.error: Exception | None = None
        self.sent = self.acknowledged = b""  # the latest writes
        self._session, self._writes = host.live(), writes
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; ``error`` is its first error."""
        self._stop.set()
        self._thread.join()

    def past(self, count: int) -> Callable[[], bool]:
        """Whether it has done that many I/Os since the last mark, or has failed."""
        return lambda: self._count >= count or self.error is not None

    def mark(self) -> tuple[int, float]:
        """I/Os since the last mark, and the seconds of the slowest."""
        with self._lock:
            done = self._count, self._longest
            self._count, self._longest = 0, 0.0
        return done

    def landed(self, reader: Host) -> bool:
        """Whether its latest acknowledged write is on the disk, and no older one."""
        return reader.live().read(_AREA) in (self.acknowledged, self.sent)

    def _run(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                self._once()
            except Exception as error:
                self.error = error
                return
            with self._lock:
                self._longest = max(self._longest, time.monotonic() - start)
                self._count += 1

    def _once(self) -> None:
        if self._writes:
            self.sent = os.urandom(BLOCK)
            self._session.write(_AREA, self.sent)
            self.acknowledged = self.sent
        data = self._session.read(_AREA)
        if self._writes and data != self.sent:
            raise OSError("it read back other bytes than it wrote")
