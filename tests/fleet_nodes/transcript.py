# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a run shows: lines with the seconds since its start, printed and in a file."""

from __future__ import annotations

import time

from tests.stands.servers import ROOT

FILE = ROOT / "build" / "fleet-transcript.txt"
_BEGIN = time.monotonic()


def say(*words: object) -> None:
    """Print a line of the transcript, and append it to the file."""
    seconds = time.monotonic() - _BEGIN
    line = f"{seconds:7.1f} s  {' '.join(str(word) for word in words)}"
    print(line, flush=True)
    with FILE.open("a") as out:
        out.write(f"{line}\n")


def begin() -> None:
    """Forget the lines of an earlier run."""
    FILE.unlink(missing_ok=True)
