# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon in a separate process, and the commands that operators type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cinderclient import client as cinder_client
from cinderclient.contrib.noauth import CinderNoAuthPlugin
from keystoneauth1.session import Session

from tests.stands.daemon import Lunshared, configuration, ready

BIN = Path(sys.executable).parent


@contextmanager
def daemon(path: Path, backends: Sequence[str], options: str = "") -> Iterator[str]:
    """A daemon on these fake backends, ready; its endpoint."""
    options = f"quota_volumes = -1\nnoauth_on_loopback = true\n{options}"
    with ready(Lunshared(path, configuration(options, backends))) as server:
        yield f"{server.url}/v3"


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
