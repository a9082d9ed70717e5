# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon as a separate process, on fake backends or another file's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.error import URLError
from urllib.request import urlopen

from tests.stands.servers import LOOPBACK, ROOT, Server, free_port
from tests.stands.waiting import until

FAKE = ROOT / "etc" / "fake.conf"
DAEMON = [sys.executable, "-m", "lunshare.agent.main"]
#: Lines of [DEFAULT] without which a test with many volumes meets a quota.
NO_QUOTAS = "quota_volumes = -1\nquota_snapshots = -1\nquota_gigabytes = -1\n"

_Daemon = TypeVar("_Daemon", bound="Lunshared")
_NOTICE_BYTES = 4096
# Importing a daemon may take minutes on a busy machine.
_START_SECONDS = 300.0


def configuration(
    options: str = "", backends: Sequence[str] = ("fake",), section: str = ""
) -> str:
    """A configuration with these fake backends.

    ``options``: lines of [DEFAULT], then whole sections. ``section``: lines of every
    backend's section.
    """
    fake = "volume_driver = fake\ntarget_driver = fake"
    sections = "".join(f"[{name}]\n{fake}\n{section}\n" for name in backends)
    return f"[DEFAULT]\nenabled_backends = {','.join(backends)}\n{options}\n{sections}"


class Lunshared(Server):
    """lunshared with a folder for its state and its log, and a port of loopback.

    It can be started again after its end.
    """

    def __init__(self, path: Path, text: str = "", *files: Path) -> None:
        """``text``, if any, is written as its configuration; it overrides ``files``."""
        super().__init__("lunshared", path)
        self.path, self.state, self.port = path, path / "state", free_port()
        self.listen = [f"{LOOPBACK}:{self.port}"]
        self._files = [*files]
        if text:
            self._files.append(path / "lunshare.conf")
            self._files[-1].write_text(text)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def argv(self) -> list[str]:
        """Its command line."""
        files = [f"--config-file={file}" for file in self._files]
        listen = f"--listen={','.join(self.listen)}"
        return [*DAEMON, *files, f"--state-path={self.state}", listen]

    def launch(self, **env: str) -> None:
        """Start it, and do not wait."""
        self.run(self.argv, **env)

    def start(self, **env: str) -> None:
        """Start it, and wait until it says READY.

        :raises AssertionError: it ended, or was not ready in time; with its output.
        """
        path = self.path / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(path))
            notices.settimeout(1)
            self.launch(NOTIFY_SOCKET=str(path), **env)
            self._wait_until_ready(notices)

    def stop(self, seconds: float = 180.0) -> None:
        """SIGTERM; it must end by itself, in so many seconds, with exit code 0."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(seconds) == 0, self.output()
        self.process = None

    def output(self) -> str:
        """All that it has written."""
        return self.log.read_text()

    def _wait_until_ready(self, notices: socket.socket) -> None:
        deadline, notice = time.monotonic() + _START_SECONDS, b""
        while b"READY=1" not in notice:
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            with contextlib.suppress(TimeoutError):
                notice = notices.recv(_NOTICE_BYTES)


@contextmanager
def ready(server: _Daemon, **env: str) -> Iterator[_Daemon]:
    """A daemon that is started for this block, and must stop cleanly after it."""
    try:
        server.start(**env)
        yield server
        if server.process is not None:
            server.stop()
    finally:
        server.end()


def refused(*arguments: str | Path) -> str:
    """Return its last line; it must end by itself, with exit code 1."""
    process = subprocess.run(
        [*DAEMON, *map(str, arguments)],
        check=False,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert process.returncode == 1, process.stderr
    assert "Traceback" not in process.stderr
    return process.stderr.strip().splitlines()[-1]


def answered(url: str, process: subprocess.Popen[bytes]) -> str:
    """Return the answer of the URL, as soon as there is one."""
    texts: list[str] = []

    def came() -> bool:
        assert process.poll() is None, f"{url} never answered"
        with contextlib.suppress(URLError), urlopen(url, timeout=5) as response:
            texts.append(response.read().decode())
        return bool(texts)

    until(came, f"an answer of {url}")
    return texts[0]


@contextmanager
def daemon(
    state: Path, *files: Path
) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """A daemon that may not be ready yet: its process, address and state path."""
    state.mkdir(exist_ok=True)
    server = Lunshared(state, "", FAKE, *files)
    server.state = state
    server.launch()
    assert server.process is not None
    try:
        yield server.process, server.url, state
    finally:
        server.end()
