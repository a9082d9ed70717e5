# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wait for a request to a share's server that shows no progress, such as a clone.

FICLONE is one system call: it cannot be interrupted, and nobody knows how far it is. So
it counts as progress that the server answers another request meanwhile, but not without
an end. After that the client gets Stalled. The thread of the request keeps its file
locked and counts as one that waits for the share, until the kernel returns.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from lunshare.drivers.errors import DeadlineExceeded, HelperBusy
from lunshare.helper.thread_limits import THREADS
from lunshare.helper.verbs import NoteProgress

#: How long such a request may take while its server answers.
ANSWERING_SECONDS = 600.0

# How often the server is asked.
_CHECK_SECONDS = 1.0


@contextlib.contextmanager
def answering(
    directory: int, medium: str, note_progress: NoteProgress
) -> Iterator[None]:
    """Call ``note_progress`` as long as the server of the open ``directory`` answers.

    The thread that asks the server hangs with it, so it is counted for ``medium``. At
    the limit there is none, and the time limit is that of any other request.
    """
    ended = threading.Event()
    with contextlib.suppress(HelperBusy, RuntimeError):
        _start(_Check(os.dup(directory), medium, note_progress, ended))
    try:
        yield
    finally:
        ended.set()


class _Check:
    """Asks a server again and again, in a thread of its own."""

    def __init__(
        self,
        share: int,
        medium: str,
        note_progress: NoteProgress,
        ended: threading.Event,
    ) -> None:
        self._share, self.medium, self._note_progress = share, medium, note_progress
        self._ended, self._until = ended, time.monotonic() + ANSWERING_SECONDS

    def run(self) -> None:
        try:
            with contextlib.suppress(OSError, DeadlineExceeded):
                while not self._ended.wait(_CHECK_SECONDS):
                    if time.monotonic() > self._until:
                        break
                    os.fstatvfs(self._share)  # NFS sends a request each time
                    self._note_progress(0)
        finally:
            self.close()
            THREADS.leave(self.medium)

    def close(self) -> None:
        os.close(self._share)


def _start(check: _Check) -> None:
    """Start its thread.

    :raises HelperBusy: too many threads wait for the medium.
    :raises RuntimeError: the system refuses a further thread.
    """
    try:
        THREADS.enter(check.medium, 0)
        try:
            thread = threading.Thread(
                target=check.run, name="server check", daemon=True
            )
            thread.start()
        except RuntimeError:
            THREADS.leave(check.medium)
            raise
    except BaseException:
        check.close()
        raise
