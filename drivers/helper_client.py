# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The unprivileged end of the door to root: lunshare.drivers.base.Root over a socket.

Connections to lunshare.drivers.helper are kept and reused, so a call costs one round
trip: no connection, no thread and no process is made for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any

from lunshare.drivers import errors
from lunshare.drivers.protocol import frames

# The helper answers at the deadline by itself; the client waits a little more,
# and gives up alone when the helper's thread hangs in the kernel. Work on bytes
# reports its progress, and each report begins the time anew.
_GRACE_SECONDS = 1.0
_CONNECT_SECONDS = 5.0

# Typed verbs that come to the same however often they are done, and commands that ask.
_SAME_AGAIN = frozenset(
    ["lio.check", "lio.apply", "lio.remove", "lio.observe", "lio.live", "lvm.commit"]
    + [f"share.{verb}" for verb in ("look", "room", "list", "find")]
)
_ASKING = frozenset(("lvs", "vgs", "dmsetup", "mkdir"))

_CLASSES: dict[str, type[errors.DriverError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.DriverError)
}


class Helper:
    """The root helper at one socket. May be used from any number of threads.

    At most ``idle`` connections are kept between calls. A connection that turns out
    to be dead is replaced once, if the helper cannot have begun what was asked, or if
    that comes to the same however often it is done. Otherwise the call raises
    Interrupted: what was begun may go on, and a driver's verb is repeated as a whole.
    """

    def __init__(self, path: str, idle: int = 16) -> None:
        self._path, self._limit = path, idle
        self._idle: list[socket.socket] = []
        self._mutex = threading.Lock()

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run an allowed command as root; see lunshare.drivers.base.Root."""
        return str(self.call("run", timeout=timeout, argv=argv))

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Call a verb of the helper; raises the error that the helper tells."""
        message = {"verb": verb, "timeout": timeout, "arguments": arguments}
        try:
            answer = self._exchange(message, timeout)
        except TimeoutError:
            raise errors.DeadlineExceeded(verb, timeout) from None
        except (frames.Closed, frames.BadFrame, OSError) as error:
            raise errors.HelperUnreachable(self._path, str(error)) from None
        if "error" in answer:
            raise _told(answer)
        return answer.get("value")

    def close(self) -> None:
        """Close the kept connections; a later call makes new ones."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        connection = self._take()
        if connection is not None:
            with contextlib.suppress(_NotBegun):
                return self._ask(connection, message, timeout)
            self.close()  # the helper was started anew: none of them is alive
        try:
            return self._ask(self._connect(), message, timeout)
        except _NotBegun as error:
            raise ConnectionError(str(error)) from None

    def _ask(
        self, connection: socket.socket, message: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        try:
            _limit(connection, timeout + _GRACE_SECONDS)
            answer = self._answer(connection, message)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return dict(answer)

    def _answer(self, connection: socket.socket, message: dict[str, Any]) -> Any:
        try:
            frames.send(connection, message)
            while "progress" in (answer := frames.receive(connection)):
                pass  # each begins the time limit anew
            return answer
        except (BrokenPipeError, ConnectionResetError) as error:
            # Not all of it was sent, or not all was read (af_unix.c,
            # unix_release_sock: only then is the other side reset).
            raise _NotBegun(str(error)) from None
        except frames.Closed as error:
            if _same_again(message):
                raise _NotBegun(str(error)) from None
            raise errors.Interrupted(self._path, "it ended meanwhile") from None

    def _take(self) -> socket.socket | None:
        with self._mutex:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: socket.socket) -> None:
        with self._mutex:
            if len(self._idle) < self._limit:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(self._path)
        except TimeoutError:
            connection.close()
            raise ConnectionError("it takes no connections") from None
        except OSError:
            connection.close()
            raise
        return connection


class _NotBegun(Exception):
    """The helper did not begin it, or may begin it again."""


def _same_again(message: Mapping[str, Any]) -> bool:
    """Whether it does no harm to do it twice, even at once."""
    if message["verb"] == "run":
        return message["arguments"]["argv"][0] in _ASKING
    return message["verb"] in _SAME_AGAIN


def _limit(connection: socket.socket, seconds: float) -> None:
    """Set the connection's timeout, which is a system call, if it is another."""
    if connection.gettimeout() != seconds:
        connection.settimeout(seconds)


def _told(answer: dict[str, Any]) -> errors.DriverError:
    """The error that the helper raised, made again from its code and fields."""
    fields = [
        tuple(field) if isinstance(field, list) else field
        for field in answer.get("fields", ())
    ]
    kind = _CLASSES.get(str(answer["error"]), errors.DriverError)
    try:
        return kind(*fields)
    except TypeError:  # a helper of another version
        return errors.DriverError(f"{answer['error']}: {fields}")
