# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A compute host: os-brick and the kernel's own initiator, as Nova uses them.

Runs as a separate process (``python -m tests.system.compute_host``), because
os-brick loads many modules and a login may hang. It reads one JSON list per line,
``[verb, argument]``, and answers each with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

_BLOCK = 4096


def main() -> int:
    """Answer requests until the end of the input."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # other output must not mix with our lines
    verbs = _verbs()
    for line in sys.stdin:
        verb, argument = json.loads(line)
        try:
            answer = {"value": verbs[verb](argument)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
    return 0


def _verbs() -> dict[str, Callable[[Any], Any]]:
    warnings.simplefilter("ignore")  # of os-brick's dependencies
    import os_brick
    from os_brick import privileged
    from os_brick.initiator import connector
    from oslo_concurrency import lockutils
    from oslo_config import cfg

    lockutils.set_defaults("/run/lock")
    cfg.CONF([], project="compute")
    os_brick.setup(cfg.CONF)
    privileged.default.set_client_mode(False)  # we are root already

    def connect(info: dict[str, Any]) -> str:
        return str(_connector().connect_volume(info)["path"])

    def disconnect(info: dict[str, Any]) -> None:
        _connector().disconnect_volume(info, None, force=True, ignore_errors=False)

    def _connector() -> Any:
        factory = connector.InitiatorConnector.factory
        return factory("ISCSI", None, use_multipath=False, device_scan_attempts=5)

    def properties(_: object) -> Any:
        get = connector.get_connector_properties
        return get(None, "127.0.0.1", multipath=False, enforce_multipath=False)

    return {
        "properties": properties,
        "connect": connect,
        "disconnect": disconnect,
        "write": _write,
        "read": _read,
    }


def _write(given: list[str]) -> None:
    """Write a text to the first block of a device with O_DIRECT."""
    path, text = given
    device = os.open(path, os.O_WRONLY | os.O_SYNC)
    try:
        os.write(device, text.encode().ljust(_BLOCK, b"."))
    finally:
        os.close(device)


def _read(path: str) -> str:
    """The text at the start of the device, as the target has it now."""
    device = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(device, 0, _BLOCK, os.POSIX_FADV_DONTNEED)
        return os.read(device, _BLOCK).decode().rstrip(".")
    finally:
        os.close(device)


if __name__ == "__main__":
    sys.exit(main())
