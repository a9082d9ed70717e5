# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of a client (cinder, openstack), each in a child of its own.

The child has the modules already: importing them takes most of the time of a command.
A line of the input is a JSON list of words; the answer is [exit code, output, errors].
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
import tempfile
from typing import Any

_SHELLS = {"cinder": "cinderclient.shell", "openstack": "openstackclient.shell"}


def main() -> None:
    """Answer until the end of the input."""
    client = sys.argv[1]
    shell = importlib.import_module(_SHELLS[client])
    if client == "openstack":
        _load(shell)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        answers.write(json.dumps(_run(shell, client, json.loads(line))) + "\n")


def _load(shell: Any) -> None:
    """Import what commands of openstackclient import: a help text needs all of it."""
    sys.argv = ["openstack", "volume", "list", "--help"]
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.suppress(SystemExit),
    ):
        shell.main()
    # Its handlers would write what the children write, once more.
    logging.getLogger().handlers.clear()
    importlib.import_module("openstack.block_storage.v3._proxy")


def _run(shell: Any, client: str, words: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = [client, *words]
            sys.exit(shell.main())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), errors.read()


if __name__ == "__main__":
    main()
