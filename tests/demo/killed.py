# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon and its root helper, in the middle of a request."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from tests.demo import api

_UNITS = ("lunshare-helper", "lunshared")


def in_the_middle(attach: Callable[[], None], volume: str) -> float:
    """Kill both after the intent of an attach to a volume, and before its effect.

    The helper is stopped first, so the attach cannot go on. systemd starts both again.
    Returns the seconds until the daemon is ready.

    :raises Broken: the attach was answered, or they do not come back.
    """
    helper, daemon = (_main_pid(unit) for unit in _UNITS)
    answers: list[str] = []
    os.kill(helper, signal.SIGSTOP)
    client = threading.Thread(target=_unanswered, args=(attach, answers), daemon=True)
    client.start()
    try:
        api.until("the attach to begin", lambda: _attaching(volume))
    finally:
        start = time.monotonic()
        for pid in (helper, daemon):
            os.kill(pid, signal.SIGKILL)
    client.join(60)
    if answers:
        raise api.Broken(f"the attach that was killed got an answer: {answers[0]}")
    api.until("lunshared to be back", _is_back, 180)
    return time.monotonic() - start


def _unanswered(attach: Callable[[], None], answers: list[str]) -> None:
    try:
        attach()
        answers.append("it is attached")
    except api.Refused as refused:
        answers.append(str(refused))
    except OSError:
        return  # the connection has ended


def _attaching(volume: str) -> bool:
    rows = api.call("GET", f"/v3/attachments?volume_id={volume}")["attachments"]
    return any(row["status"] == "attaching" for row in rows)


def _is_back() -> bool:
    try:
        return api.ready()
    except OSError:
        return False  # it does not answer yet


def _main_pid(unit: str) -> int:
    words = ["systemctl", "show", "--property", "MainPID", "--value", unit]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(done.stdout)
