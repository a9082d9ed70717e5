# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon in a separate process, and the commands that operators type."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cinderclient import client as cinder_client
from cinderclient.contrib.noauth import CinderNoAuthPlugin
from keystoneauth1.session import Session

BIN = Path(sys.executable).parent
SECTION = """
[{name}]
volume_driver = fake
target_driver = fake
"""


@contextmanager
def daemon(path: Path, backends: Sequence[str], options: str = "") -> Iterator[str]:
    """A daemon on these fake backends, ready; its endpoint."""
    text = f"[DEFAULT]\nenabled_backends = {','.join(backends)}\nquota_volumes = -1\n"
    text += "noauth_on_loopback = true\n"
    text += f"{options}\n"
    text += "".join(SECTION.format(name=name) for name in backends)
    (path / "lunshare.conf").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lunshare.agent.main", "--state-path", str(path)]
    command += ["--config-file", str(path / "lunshare.conf")]
    command += ["--listen", f"127.0.0.1:{port}"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        (path / "log").open("wb") as log,
    ):
        notices.bind(str(path / "notify"))
        notices.settimeout(60)
        env = {**os.environ, "NOTIFY_SOCKET": str(path / "notify")}
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            while b"READY=1" not in notices.recv(4096):
                assert process.poll() is None, (path / "log").read_text()
            yield f"http://127.0.0.1:{port}/v3"
            process.terminate()
            assert process.wait(30) == 0, (path / "log").read_text()
        finally:
            process.kill()
            process.wait()


def library(endpoint: str) -> Any:
    """cinderclient as a library, in the same project as openstackclient."""
    session = Session(auth=CinderNoAuthPlugin("u", "default", endpoint=endpoint))
    return cinder_client.Client("3.71", session=session)


def asked(
    endpoint: str, commands: Mapping[str, str], silent: Collection[str]
) -> dict[str, Any]:
    """What one openstack process answered to a round of commands, by name.

    Starting the command costs a second, so it is asked as an operator at its
    prompt asks it. Its exit code is always 0 then; errors are on stderr.
    """
    said = "".join(
        f"{command}\n" if name in silent else f"{command} -f json\n"
        for name, command in commands.items()
    )
    env = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": endpoint}
    env |= {"OS_VOLUME_API_VERSION": "3.71", **os.environ}
    done = subprocess.run(
        [str(BIN / "openstack")],
        input=said,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "", done.stderr + done.stdout
    speaking = [name for name in commands if name not in silent]
    return dict(zip(speaking, _documents(done.stdout), strict=True))


def _documents(text: str) -> Iterator[Any]:
    """The JSON values in a text, one after the other."""
    decoder = json.JSONDecoder()
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]
