# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a command prints: no text of others commands a terminal or ends a line."""

from __future__ import annotations

import io
import os
import sys


class Unwritten(Exception):
    """Standard output takes no more, such as on a full disk. The text has why."""


def visible(text: str) -> str:
    """Return a text of others as one line, each sign that is not shown as its code."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def write(text: str) -> bool:
    """Print a text at once; return False if its reader, such as head, has ended.

    A letter that the terminal lacks is its code.

    :raises Unwritten: it is lost.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except OSError as error:
        # What is left in the buffer would be an error again when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return False
        raise Unwritten(
            f"the output could not be written ({error.strerror}); the command is done"
        ) from None
    return True
