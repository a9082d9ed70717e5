# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read what a command writes, until a deadline, and not more than a limit.

The client chooses the columns of a report, and a server the sentences of mount.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import IO

#: Bytes on stdout and stderr together: a report on 40,000 logical volumes.
MAX_OUTPUT = 16 * 1024**2

_PIECE = 64 * 1024


class TooMuch(Exception):
    """The command has written more than the limit, and may still run."""


def collect(
    out: IO[bytes] | None, err: IO[bytes] | None, seconds: float
) -> tuple[str, str]:
    """Return what comes from the two pipes of a command until it closes them.

    :raises TimeoutError: it has not after so many seconds.
    :raises TooMuch: it has written too much.
    """
    until = time.monotonic() + seconds
    texts = {pipe: bytearray() for pipe in (out, err) if pipe}
    with selectors.DefaultSelector() as pipes:
        for pipe, text in texts.items():
            pipes.register(pipe, selectors.EVENT_READ, text)
        while pipes.get_map():
            _read(pipes, until)
            if sum(map(len, texts.values())) > MAX_OUTPUT:
                raise TooMuch
    first, second = (text.decode(errors="replace") for text in texts.values())
    return first, second


def _read(pipes: selectors.BaseSelector, until: float) -> None:
    """Read a piece of each pipe that has one."""
    ready = pipes.select(max(0.0, until - time.monotonic()))
    if not ready:
        raise TimeoutError
    for pipe, _ in ready:
        piece = os.read(pipe.fd, _PIECE)
        pipe.data.extend(piece)
        if not piece:
            pipes.unregister(pipe.fileobj)
