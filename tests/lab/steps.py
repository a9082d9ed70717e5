# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the lab says while it works: one line per step, with its seconds, on stderr."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class LabError(Exception):
    """The lab itself could not do something; the text is for the person at the keyboard."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Show `what` while it runs and its duration when it is over."""
    started = time.monotonic()
    sys.stderr.write(f"lab: {what} ... ")
    sys.stderr.flush()
    word = "failed after "
    try:
        yield
        word = ""
    finally:
        sys.stderr.write(f"{word}{time.monotonic() - started:.1f} s\n")
        sys.stderr.flush()


def say(line: str) -> None:
    sys.stderr.write(f"lab: {line}\n")
    sys.stderr.flush()


def sh(argv: Sequence[str], *, env: dict[str, str] | None = None, cwd: str | None = None) -> str:
    """Run a program of the host; its output is shown only when it fails."""
    done = subprocess.run(argv, env=env, cwd=cwd, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise LabError(f"{' '.join(argv)[:300]}\nexited with {done.returncode}:\n{tail}")
    return done.stdout
