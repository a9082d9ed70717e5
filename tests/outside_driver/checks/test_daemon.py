# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""lunshared finds the driver by its entry point, and creates volumes with it."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from dirs_fixtures import filters_for

CONFIGURATION = """
[DEFAULT]
enabled_backends = files
noauth_on_loopback = true
[helper]
socket = {socket}
[files]
volume_driver = dirs
target_driver = fake
dirs_path = {pool}
dirs_capacity_gb = 2
"""


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    pool = tmp_path / "pool"
    pool.mkdir(mode=0o755)
    return pool


@pytest.fixture
def url(tmp_path: Path, pool: Path) -> Iterator[str]:
    """A helper with the driver's filters, and a daemon whose backend is the driver."""
    socket, address = (
        tmp_path / "helper.sock",
        f"127.0.0.1:{20000 + os.getpid() % 9999}",
    )
    filters = filters_for(pool, tmp_path / "rootwrap.d")
    conf = tmp_path / "lunshare.conf"
    conf.write_text(CONFIGURATION.format(pool=pool, socket=socket))
    served = tmp_path / "helper.conf"
    served.write_text("[helper]\n")  # its volumes are files, which the fake exports
    served.chmod(0o644)
    helper = ["-m", "lunshare.helper.main", "--user", getpass.getuser()]
    helper += ["--socket", str(socket), "--filters", filters, "--config", str(served)]
    daemon = [
        "-m",
        "lunshare.agent.main",
        "--config-file",
        str(conf),
        "--listen",
        address,
    ]
    daemon += ["--state-path", str(tmp_path / "state")]
    running = [subprocess.Popen([sys.executable, *helper])]
    until(socket.exists)
    running.append(subprocess.Popen([sys.executable, *daemon]))
    try:
        until(lambda: answer(f"http://{address}/readyz") is not None)
        yield f"http://{address}"
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)


def test_a_volume_of_the_api_is_a_file(url: str, pool: Path) -> None:
    body = {"volume": {"name": "outside", "size": 1}}
    made = answer(f"{url}/v3/volumes", body)["volume"]
    of_it = f"{url}/v3/volumes/{made['id']}"
    until(lambda: answer(of_it)["volume"]["status"] == "available")
    file = pool / f"volume-{made['id']}"
    assert file.stat().st_size == 1024**3
    answer(of_it, method="DELETE")
    until(lambda: not file.exists())


def answer(url: str, body: object = None, method: str | None = None) -> Any:
    """The answer of the API; None while the daemon does not listen."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "X-Auth-Token": "outside"}
    try:
        with urlopen(
            Request(url, data, headers, method=method), timeout=30
        ) as response:
            return json.loads(response.read() or b"{}")
    except HTTPError as error:
        raise AssertionError(error.read().decode()) from error
    except URLError:
        return None


def until(ready: Callable[[], object], seconds: float = 60.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
