# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The output of the lab: one line per step, with its seconds, on stderr."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class LabError(Exception):
    """The lab itself failed; the text is for the user."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Show `what` while it runs, and its duration at the end."""
    started = time.monotonic()
    sys.stderr.write(f"lab: {what} ... ")
    sys.stderr.flush()
    word = "failed after "
    try:
        yield
        word = ""
    finally:
        say_end(f"{word}{time.monotonic() - started:.1f} s")


def say(line: str) -> None:
    """Print one line that is not a step."""
    say_end(f"lab: {line}")


def say_end(words: str) -> None:
    """Print the rest of a line."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def sh(
    argv: Sequence[object],
    *,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program of the host; its output is shown only when it fails."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words,
        env=env,
        cwd=cwd,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        shown = " ".join(words)[:300]
        raise LabError(f"{shown}\nexited with {done.returncode}:\n{last(done.stdout)}")
    return done.stdout


def last(text: str, lines: int = 40) -> str:
    """Its last lines."""
    return "\n".join(text.splitlines()[-lines:])
