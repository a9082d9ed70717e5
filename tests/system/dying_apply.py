# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An apply of the helper in a process that is killed between two lines of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import lunshare.helper
from lunshare.helper.lio.target_requests import Apply
from lunshare.helper.lio.target_verbs import TargetVerbs

_OURS = str(Path(lunshare.helper.__file__).parent)


def is_killed(line: int, make: Callable[[], TargetVerbs], asked: Apply) -> bool:
    """Apply in a process that is killed at its ``line``th line; whether it was."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        left -= event == "line"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        lio = make()
        threading.settrace(trace)
        sys.settrace(trace)
        lio.apply(asked, 20)
    finally:
        os._exit(0)
