# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API as the demo speaks it: nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

ADDRESS = ("127.0.0.1", 8776)
_HEADERS = {
    "OpenStack-API-Version": "volume 3.71",
    "Content-Type": "application/json",
}


class Broken(Exception):
    """Something did not go as promised; the text is the demo's last sentence."""


class Refused(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(f"{status}: {sentence}")
        self.status = status


def call(method: str, path: str, body: object = None) -> Any:
    """One request, a connection of its own; the answer's JSON.

    :raises Refused: its status is 400 or more.
    :raises OSError: nobody answers.
    """
    connection = http.client.HTTPConnection(*ADDRESS, timeout=60)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, _HEADERS)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    found = json.loads(data) if data else None
    if answer.status >= 400:
        raise Refused(answer.status, _sentence(found))
    return found


def start() -> None:
    """Start the daemon's unit unless it answers already; wait until it is ready.

    :raises Broken: it does not get ready.
    """
    if not _answers():
        units = ["lunshare-helper.socket", "lunshared.service"]
        done = subprocess.run(["systemctl", "start", *units], check=False)
        if done.returncode:
            raise Broken("lunshared.service does not start: journalctl -u lunshared")
    until("lunshared to be ready", _ready, 60)


def until(what: str, ready: Callable[[], bool], seconds: float = 30) -> None:
    """Ask again and again: the API has no events.

    :raises Broken: it is not so after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise Broken(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.05)


def gone(path: str) -> bool:
    """Whether there is nothing there (any more)."""
    try:
        call("GET", path)
    except Refused as refused:
        return refused.status == 404
    return False


def _answers() -> bool:
    try:
        call("GET", "/healthz")
    except OSError:
        return False
    return True


def _ready() -> bool:
    try:
        return bool(call("GET", "/readyz")["ready"])
    except Refused:
        return False


def _sentence(found: Any) -> str:
    if isinstance(found, dict) and "problems" in found:
        return "; ".join(found["problems"])
    return str(next(iter(found.values()))["message"])
