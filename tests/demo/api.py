# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the HTTP API for the demo; standard library only."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

ADDRESS = ("127.0.0.1", 8776)
_HEADERS = {"OpenStack-API-Version": "volume 3.71", "Content-Type": "application/json"}


class Broken(Exception):
    """A check of the demo failed; the text is the demo's last sentence."""


class Refused(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(f"{status}: {sentence}")
        self.status = status


def call(method: str, path: str, body: object = None) -> Any:
    """Send one request on a new connection; returns the answer's JSON.

    :raises Refused: its status is 400 or more.
    :raises OSError: the API does not answer.
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
    """Start the daemon's unit if it does not answer; wait until it is ready.

    :raises Broken: it is not ready in time.
    """
    if not _answers():
        units = ["lunshare-helper.socket", "lunshared.service"]
        done = subprocess.run(["systemctl", "start", *units], check=False)
        if done.returncode:
            raise Broken("lunshared.service does not start: journalctl -u lunshared")
    until("lunshared to be ready", ready, 60)


def until(what: str, ready: Callable[[], bool], seconds: float = 30) -> None:
    """Poll: the API has no events.

    :raises Broken: it is not true after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise Broken(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


def gone(path: str) -> bool:
    """Whether GET answers 404."""
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


def ready() -> bool:
    """Whether the daemon and all backends work."""
    try:
        return bool(call("GET", "/readyz")["ready"])
    except Refused:
        return False


def _sentence(found: Any) -> str:
    if isinstance(found, dict) and "problems" in found:
        return "; ".join(found["problems"])
    return str(next(iter(found.values()))["message"])
