# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The client of the root helper: lunshare.drivers.driver.Root over a socket.

Connections to lunshare.helper are stored and reused, so a call costs one round
trip: it creates no connection, no thread and no process.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import threading
from collections.abc import Mapping
from typing import Any

from lunshare.drivers import errors
from lunshare.drivers.protocol import frames, messages

# The helper itself answers at the deadline. The client waits a little longer, and gives
# up when the helper's thread hangs in the kernel. For work on bytes each progress
# report starts the time again.
_GRACE_SECONDS = 1.0
_CONNECT_SECONDS = 5.0

# Verbs and commands with the same result when they run twice, even at the same time.
_IDEMPOTENT = frozenset(
    ["lio.check", "lio.apply", "lio.remove", "lio.observe", "lio.live", "lio.host"]
    + ["lvm.commit", "lvm.pool", "lvm.mapped", "node.processes"]
    + [f"share.{verb}" for verb in ("check", "capacity", "list", "find")]
)
_IDEMPOTENT_COMMANDS = frozenset(("lvs", "vgs", "mkdir"))


class Helper:
    """The root helper at one socket. May be used from any number of threads.

    At most ``idle`` connections are stored between calls. A dead connection is replaced
    once, if the helper cannot have started the request, or if the request is
    idempotent. Otherwise the call raises Interrupted: a started command may still run,
    and the driver retries its complete verb.

    ``blocked``: whether the last call got no answer, or none in time.
    """

    def __init__(self, path: str, idle: int = 16) -> None:
        self._path, self._limit = path, idle
        self._idle: list[socket.socket] = []
        self._mutex = threading.Lock()
        self.blocked = False

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run an allowed command as root; see lunshare.drivers.driver.Root."""
        return str(self.call("run", timeout=timeout, argv=argv))

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Call a verb of the helper, and raise the error that it returns.

        :raises HelperVersion: helper and daemon are of two versions.
        :raises HelperForbidden: this user may not open the socket.
        """
        message = messages.request(verb, timeout, arguments)
        try:
            answer = self._exchange(message, timeout)
            self.blocked = False
        except TimeoutError:
            self.blocked = True
            raise errors.DeadlineExceeded(verb, timeout) from None
        except PermissionError as error:
            raise errors.HelperForbidden(self._path, str(error), _user()) from None
        except (frames.Closed, frames.BadFrame, OSError) as error:
            self.blocked = True
            raise errors.HelperUnreachable(self._path, str(error)) from None
        if "error" in answer:
            raise messages.error_of(answer)
        return answer["value"]

    def close(self) -> None:
        """Close the stored connections; a later call opens new ones."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        connection = self._take()
        if connection is not None:
            with contextlib.suppress(_NotStarted):
                return self._ask(connection, message, timeout)
            self.close()  # the helper was restarted: all of them are dead
        connection = frames.connect(self._path, _CONNECT_SECONDS)
        try:
            return self._ask(connection, message, timeout)
        except _NotStarted as error:
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
        self._store(connection)
        return answer

    def _answer(
        self, connection: socket.socket, message: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            frames.send(connection, message)
            while "progress" in (answer := _message(frames.receive(connection))):
                pass  # each starts the time limit again
            return answer
        except (BrokenPipeError, ConnectionResetError) as error:
            # The request was not sent completely, or not read completely (af_unix.c,
            # unix_release_sock: the client sees a reset only then).
            raise _NotStarted(str(error)) from None
        except frames.Closed as error:
            if _is_idempotent(message):
                raise _NotStarted(str(error)) from None
            raise errors.Interrupted(self._path, "it ended meanwhile") from None

    def _take(self) -> socket.socket | None:
        with self._mutex:
            return self._idle.pop() if self._idle else None

    def _store(self, connection: socket.socket) -> None:
        with self._mutex:
            if len(self._idle) < self._limit:
                self._idle.append(connection)
                return
        connection.close()


def _message(received: object) -> dict[str, Any]:
    """Return what was received, if it is an answer or a report of progress."""
    if isinstance(received, dict) and received.keys() & {"value", "error", "progress"}:
        return received
    raise frames.BadFrame("a frame that is not an answer")


def _user() -> str:
    """Return the name of this process's user."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class _NotStarted(Exception):
    """The helper did not start the request, or the request is idempotent."""


def _is_idempotent(message: Mapping[str, Any]) -> bool:
    """Whether the request may run twice, even at the same time."""
    if message["call"] == "run":
        return message["arguments"]["argv"][0] in _IDEMPOTENT_COMMANDS
    return message["call"] in _IDEMPOTENT


def _limit(connection: socket.socket, seconds: float) -> None:
    """Set the connection's timeout if it differs: setting it is a system call."""
    if connection.gettimeout() != seconds:
        connection.settimeout(seconds)
