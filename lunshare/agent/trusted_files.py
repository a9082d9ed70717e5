# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Files that decide who may do what: nobody else may write them."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat

_DAEMON = "lunshare"  # the user of the daemon


def trust_problem(status: os.stat_result, secret: bool = False) -> str:
    """Return how others could change a file, and what to do, or "".

    ``secret``: nor may everybody read it.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is not a file"
    if status.st_uid not in _owners():
        return f"belongs to uid {status.st_uid}: chown it to root"
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"has mode {mode}, so others can write it: chmod go-w"
    if secret and status.st_mode & stat.S_IROTH:
        return f"has mode {mode}, so everybody can read it: chmod o-r"
    return ""


def _owners() -> set[int]:
    """Return who may own the file: root, this process, and for root the daemon."""
    owners = {0, os.geteuid()}
    if os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            owners.add(pwd.getpwnam(_DAEMON).pw_uid)
    return owners
