# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command cinder with brick-cinderclient-ext, as root: see commands.py.

os-brick starts a second process with sudo for what only root may do. This process is
root's, so it does that itself.
"""

from __future__ import annotations

import importlib
import logging
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    importlib.import_module("brick_cinderclient_ext")
    # It warns in each command that this host has no NVMe.
    logging.getLogger("os_brick").setLevel(logging.ERROR)
    importlib.import_module("os_brick.privileged").default.set_client_mode(False)
    sys.argv[1:] = ["cinder"]
    runpy.run_path(str(Path(__file__).with_name("commands.py")), run_name="__main__")
