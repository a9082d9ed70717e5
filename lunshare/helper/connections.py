# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The open connections: their limit, the part reserved for root, the idle ones.

A connection is busy from a complete frame to its answer. Otherwise it is idle, also
while its client sends a frame or does not read an answer. At the limit the connection
that is idle for the longest time is closed.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time

from lunshare.drivers import errors
from lunshare.drivers.protocol import frames, messages

#: More than any client's pool: a connection is busy for as long as a disk hangs. The
#: last ones are reserved for root, so that no user can lock out an administrator.
MAX_CONNECTIONS, FOR_ROOT = 128, 16

#: Seconds for a frame, from its first byte to its last.
FRAME_SECONDS = 10.0

#: How many large frames are in memory at once.
MAX_LARGE = 8

#: Bytes of large answers that clients have not read yet, without those of root; and the
#: seconds for reading one. Eight reports of LVM at once, each as long as allowed.
MAX_UNREAD, ANSWER_SECONDS = 128 * 1024**2, 10.0

_TOO_MANY_UNREAD = messages.error_answer(
    errors.HelperBusy("too many large answers of it are not read yet")
)

# struct timeval: how often the time of a frame is checked; how long a send may wait.
_RECEIVE_TIMEOUT = struct.pack("ll", 1, 0)
_SEND_TIMEOUT = struct.pack("ll", int(FRAME_SECONDS), 0)


class LargeFrames:
    """Counts the large frames in memory. A closed connection does not wait for one.

    Its thread would be one beyond the limit of connections. Only a thread that may
    continue is woken: a hundred of them may wait.
    """

    def __init__(self) -> None:
        self._free = MAX_LARGE
        self._mutex = threading.Lock()
        self._turns: dict[Peer, threading.Condition] = {}

    def acquire(self, peer: Peer, seconds: float) -> bool:
        """Wait for so long to count one more; False if there is none, or it ended."""
        with self._mutex:
            turn = self._turns[peer] = threading.Condition(self._mutex)
            turn.wait_for(lambda: self._free or peer.ended, seconds)
            del self._turns[peer]
            acquired = self._free > 0 and not peer.ended
            self._free -= acquired
            self._wake_next()
            return acquired

    def release(self) -> None:
        """Count one less."""
        with self._mutex:
            self._free += 1
            self._wake_next()

    def wake(self, peer: Peer) -> None:
        """Let the thread of a connection that has ended continue."""
        with self._mutex:
            if turn := self._turns.get(peer):
                turn.notify()

    def _wake_next(self) -> None:
        if self._free and self._turns:
            next(iter(self._turns.values())).notify()


class Unread:
    """Counts the bytes of large answers. One that does not fit is not sent."""

    def __init__(self) -> None:
        self._free = MAX_UNREAD
        self._mutex = threading.Lock()

    def acquire(self, size: int) -> bool:
        """Count so many bytes more; False if there are too many."""
        with self._mutex:
            fits = size <= self._free
            self._free -= size if fits else 0
            return fits

    def release(self, size: int) -> None:
        """Count so many bytes less."""
        with self._mutex:
            self._free += size


class Peer:
    """One connection, with the uid of its client."""

    def __init__(
        self, connection: socket.socket, uid: int, large: LargeFrames, unread: Unread
    ) -> None:
        self.socket, self.uid, self._unread = connection, uid, unread
        self.idle_since, self.ended = time.monotonic(), False
        self._large, self._has_large = large, False
        for option, value in (
            (socket.SO_RCVTIMEO, _RECEIVE_TIMEOUT),
            (socket.SO_SNDTIMEO, _SEND_TIMEOUT),
        ):
            connection.setsockopt(socket.SOL_SOCKET, option, value)

    def receive(self) -> object:
        """Return the next frame; raises as frames.receive."""
        return frames.receive(
            self.socket, frames.MAX_REQUEST, FRAME_SECONDS, self._acquire_large
        )

    def send(self, frame: bytes) -> None:
        """Send an answer. A large one, or HelperBusy in its place, within a time.

        :raises OSError: the client has disconnected, or reads too slowly.
        """
        if len(frame) <= frames.LARGE:
            self.socket.sendall(frame)
        elif not self.uid:
            self._send_large(frame)
        elif self._unread.acquire(len(frame)):
            try:
                self._send_large(frame)
            finally:
                self._unread.release(len(frame))
        else:
            frames.send(self.socket, _TOO_MANY_UNREAD)

    def free(self) -> None:
        """Release the large frame, so that any connection may send the next one."""
        if self._has_large:
            self._has_large = False
            self._large.release()

    def is_gone(self) -> bool:
        """Whether the client has closed the connection, or has ended.

        Also with bytes of it that are not read yet: the kernel reports the hang-up of
        a unix socket (poll(2)) as soon as its other end is closed.
        """
        poll = select.poll()
        poll.register(self.socket, 0)
        return bool(poll.poll(0))

    def end(self) -> None:
        """Close both directions, so that the thread of this connection ends."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._large.wake(self)

    def _send_large(self, frame: bytes) -> None:
        # A timeout of Python's is for all bytes, SO_SNDTIMEO for each piece of them.
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.sendall(frame)
        self.socket.settimeout(None)

    def _acquire_large(self, seconds: float) -> None:
        self._has_large = self._large.acquire(self, seconds)
        if self.ended:
            raise frames.Closed(clean=False)
        if not self._has_large:
            raise frames.BadFrame(f"{MAX_LARGE} large frames are in progress")


class Connections:
    """All open connections."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: set[Peer] = set()
        self._busy: set[Peer] = set()
        self._large, self._unread = LargeFrames(), Unread()

    def admit(self, connection: socket.socket, uid: int) -> Peer | None:
        """Add a connection, closing an idle one at the limit; None if all are busy."""
        with self._mutex:
            if self._full(uid) and not self._end_idle(uid):
                return None
            peer = Peer(connection, uid, self._large, self._unread)
            self._idle.add(peer)
            return peer

    def start(self, peer: Peer) -> bool:
        """Mark it busy; False if the connection was closed meanwhile."""
        with self._mutex:
            if peer.ended:
                return False
            self._idle.discard(peer)
            self._busy.add(peer)
            return True

    def finish(self, peer: Peer) -> None:
        """Mark it idle: its request has an answer."""
        with self._mutex:
            self._busy.discard(peer)
            peer.idle_since = time.monotonic()
            self._idle.add(peer)
        peer.free()

    def remove(self, peer: Peer) -> None:
        """Forget a connection that is closed."""
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
        """Close the connection that is idle for the longest time.

        Only a connection of root may displace an idle one of root.
        """
        idle = [peer for peer in self._idle if peer.uid or not uid]
        if not idle:
            return False
        oldest = min(idle, key=lambda peer: (peer.uid == 0, peer.idle_since))
        self._idle.discard(oldest)
        oldest.end()
        return True
