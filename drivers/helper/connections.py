# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who is connected: so many and no more, some of them root's, the idle ended first.

A connection is busy from a whole frame to its answer, and idle otherwise, also while
its client sends a frame or does not read an answer.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from lunshare.drivers.protocol import frames

#: More than any client's pool; one is held for as long as a disk hangs. The last ones
#: are root's: nobody else can keep an administrator out.
MAX_CONNECTIONS, FOR_ROOT = 128, 16

#: Seconds for a frame, from its first byte to its last.
FRAME_SECONDS = 10.0

#: Large frames in memory at once.
MAX_LARGE = 8

_LOOK = struct.pack("ll", 1, 0)  # struct timeval, for SO_RCVTIMEO
_PATIENCE = struct.pack("ll", int(FRAME_SECONDS), 0)


class Peer:
    """One connection, of a user."""

    def __init__(
        self, connection: socket.socket, uid: int, large: threading.Semaphore
    ) -> None:
        self.socket, self.uid = connection, uid
        self.idle_since, self.ended = time.monotonic(), False
        self._large, self._has_large = large, False
        for option, value in (
            (socket.SO_RCVTIMEO, _LOOK),
            (socket.SO_SNDTIMEO, _PATIENCE),
        ):
            connection.setsockopt(socket.SOL_SOCKET, option, value)

    def receive(self) -> object:
        """The next frame; raises as frames.receive."""
        return frames.receive(
            self.socket, frames.MAX_REQUEST, FRAME_SECONDS, self._take_large
        )

    def free(self) -> None:
        """What was asked is done: another large frame may come, of whomever."""
        if self._has_large:
            self._has_large = False
            self._large.release()

    def end(self) -> None:
        """Let its thread find the connection closed."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _take_large(self, seconds: float) -> None:
        if not self._large.acquire(timeout=seconds):
            raise frames.BadFrame(f"{MAX_LARGE} large frames are under way")
        self._has_large = True


class Connections:
    """All of them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: set[Peer] = set()
        self._busy: set[Peer] = set()
        self._large = threading.Semaphore(MAX_LARGE)

    def admit(self, connection: socket.socket, uid: int) -> Peer | None:
        """Take it in, ending an idle one for it if need be; None if all are busy."""
        with self._mutex:
            if self._full(uid) and not self._end_idle(uid):
                return None
            peer = Peer(connection, uid, self._large)
            self._idle.add(peer)
            return peer

    def begin(self, peer: Peer) -> bool:
        """Its request is to be done; False if the connection was ended meanwhile."""
        with self._mutex:
            if peer.ended:
                return False
            self._idle.discard(peer)
            self._busy.add(peer)
            return True

    def done(self, peer: Peer) -> None:
        """Its request has an answer."""
        with self._mutex:
            self._busy.discard(peer)
            peer.idle_since = time.monotonic()
            self._idle.add(peer)
        peer.free()

    def leave(self, peer: Peer) -> None:
        """It has gone."""
        with self._mutex:
            self._idle.discard(peer)
            self._busy.discard(peer)
        peer.free()

    def _full(self, uid: int) -> bool:
        everyone = len(self._idle) + len(self._busy)
        if not uid:
            return everyone >= MAX_CONNECTIONS
        others = sum(1 for peer in (*self._idle, *self._busy) if peer.uid)
        return others >= MAX_CONNECTIONS - FOR_ROOT or everyone >= MAX_CONNECTIONS

    def _end_idle(self, uid: int) -> bool:
        """End the one that is idle for the longest; for root also another user's."""
        ours = [peer for peer in self._idle if peer.uid or not uid]
        if not ours:
            return False
        oldest = min(ours, key=lambda peer: (peer.uid == 0, peer.idle_since))
        self._idle.discard(oldest)
        oldest.end()
        return True
