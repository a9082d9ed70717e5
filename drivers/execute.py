# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The unprivileged end of the door to root: drivers.base.Root over a socket.

Connections to drivers.helper are kept and reused, so a call costs one round
trip: no connection, no thread and no process is made for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from drivers import errors
from drivers.helper import frames

# The helper answers at the deadline by itself; the client waits a little more,
# and gives up alone when the helper's thread hangs in the kernel.
_GRACE_SECONDS = 1.0
_CONNECT_SECONDS = 5.0

_CLASSES: dict[str, type[errors.DriverError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.DriverError)
}


class Helper:
    """The root helper at one socket. May be used from any number of threads.

    At most ``idle`` connections are kept between calls. A connection that
    turns out to be dead is replaced once: every verb may be repeated.
    """

    def __init__(self, path: str, idle: int = 16) -> None:
        self._path, self._limit = path, idle
        self._idle: list[socket.socket] = []
        self._mutex = threading.Lock()

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run an allowed command as root; see drivers.base.Root."""
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

    def _exchange(self, message: object, timeout: float) -> dict[str, Any]:
        connection = self._take()
        if connection is not None:
            with contextlib.suppress(frames.Closed, ConnectionError):
                return self._ask(connection, message, timeout)
            self.close()  # the helper was started anew: none of them is alive
        return self._ask(self._connect(), message, timeout)

    def _ask(
        self, connection: socket.socket, message: object, timeout: float
    ) -> dict[str, Any]:
        try:
            _limit(connection, timeout + _GRACE_SECONDS)
            frames.send(connection, message)
            answer = frames.receive(connection)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return dict(answer)

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
