# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The directory of the daemon's state, which one daemon has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from oslo_concurrency import lockutils

from lunshare.agent.model.errors import StartupError


@contextmanager
def sole_owner(state_path: str) -> Iterator[None]:
    """Lock the state path, so that a second daemon cannot use it.

    :raises StartupError: it cannot be written, or another daemon uses it; or this is
        root, and it belongs to another user.
    """
    _refuse_root(state_path)
    try:
        os.makedirs(state_path, mode=0o750, exist_ok=True)
        probe = os.path.join(state_path, ".writable")
        with open(probe, "w", encoding="ascii"):
            os.unlink(probe)
    except OSError as error:
        raise StartupError(
            f"state_path {state_path} cannot be written ({error.strerror}): create it"
            " for the daemon's user, or give another with --state-path"
        ) from error
    try:
        with lockutils.lock(
            "lunshared", external=True, lock_path=state_path, blocking=False
        ):
            yield
    except lockutils.AcquireLockFailedException:
        raise StartupError(
            f"another lunshared already uses state_path {state_path}: stop it, or"
            " give this one another with --state-path"
        ) from None


def _refuse_root(state_path: str) -> None:
    """Root would follow a link that the owner of the directory has created in it."""
    with suppress(OSError):  # sole_owner reports it
        if os.geteuid() or not (owner := os.stat(state_path).st_uid):
            return
        raise StartupError(
            f"state_path {state_path} belongs to uid {owner}, and this is root:"
            " systemctl start lunshared, or run it as that user (runuser -u)"
        )
