# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The server of the root helper: who may connect, and how requests are answered.

Each connection has a thread, and serves many requests. The helper can be stopped or
killed at any time: every export stays as it is, because all state is in the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lunshare.drivers import request_ids
from lunshare.drivers.errors import (
    DriverError,
    HelperBusy,
    HelperRefused,
    InvalidValue,
    Unsupported,
)
from lunshare.drivers.protocol import frames, messages
from lunshare.drivers.stop_signals import StopSignals
from lunshare.helper import requests
from lunshare.helper.connections import MAX_CONNECTIONS, Connections, Peer
from lunshare.helper.served import NotServed
from lunshare.helper.verbs import ChangeVerb, IsGone, LongVerb, Report, never_gone

LOG = logging.getLogger(__name__)

# These are logged: no driver of lunshare sends such a request.
_REFUSALS = (HelperRefused, InvalidValue, NotServed, Unsupported)
_MOST_SHOWN = 500
_FAULT = DriverError("see the helper's journal")
# Descriptors or memory are used up. Requests in progress will release some.
_FOR_A_WHILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_FOR_A_WHILE |= {errno.ECONNABORTED, errno.EINTR}
_PAUSE_SECONDS = 0.1
Verb = Callable[[Mapping[str, Any], float], Any] | ChangeVerb | LongVerb


class Server:
    """Serves the users in ``allowed`` (uids) until the listener is closed."""

    def __init__(
        self,
        listener: socket.socket,
        table: Mapping[str, Verb],
        allowed: Collection[int],
    ) -> None:
        self._listener, self._table, self._allowed = listener, table, allowed
        self._connections = Connections()
        self._events = select.poll()
        self._events.register(listener, select.POLLIN)
        # A client that is gone again must not make accept wait for the next one.
        listener.setblocking(False)

    def serve(self, stop: StopSignals | None = None) -> None:
        """Accept connections until ``stop`` is set or ``close`` is called."""
        if stop is not None:
            self._events.register(stop, select.POLLIN)
        while stop is None or not stop.is_set():
            self._events.poll()
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                pass  # a signal
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):
                    return  # closed
                if error.errno not in _FOR_A_WHILE:
                    raise
                LOG.error("no connection can be accepted: %s", error.strerror)
                time.sleep(_PAUSE_SECONDS)
            else:
                self._admit(connection)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _admit(self, connection: socket.socket) -> None:
        uid = frames.peer_uid(connection)
        if uid not in self._allowed:
            LOG.warning("refused a connection of uid %d", uid)
            connection.close()
            return
        peer = self._connections.admit(connection, uid)
        if peer is None:
            _refuse(connection, f"all {MAX_CONNECTIONS} connections are in use")
            return
        try:
            threading.Thread(target=self._serve_peer, args=(peer,), daemon=True).start()
        except RuntimeError:  # "can't start new thread": pids or memory are used up
            self._connections.remove(peer)
            _refuse(connection, "the system refuses it a further thread")

    def _serve_peer(self, peer: Peer) -> None:
        """Answer one request after the other until the client disconnects."""
        try:
            with peer.socket:
                while self._exchange(peer):
                    pass
        except frames.BadFrame as error:
            LOG.warning("a connection of uid %d is ended: %s", peer.uid, error)
        except (frames.Closed, OSError):
            pass  # the client is gone; its request was still carried out
        finally:
            self._connections.remove(peer)

    def _exchange(self, peer: Peer) -> bool:
        frame = self._answered(peer, peer.receive())
        if frame is not None:
            peer.send(frame)
        return frame is not None

    def _answered(self, peer: Peer, message: object) -> bytes | None:
        """Return the frame of the answer; None if the connection was closed.

        The request, which may be large, is not in memory any more while it is sent.
        """
        if not self._connections.start(peer):
            return None
        try:
            return _frame(self.answer(message, _report(peer.socket), peer.is_gone))
        finally:
            self._connections.finish(peer)

    def answer(
        self,
        message: object,
        report: Report = lambda done: None,
        is_gone: IsGone = never_gone,
    ) -> dict[str, Any]:
        """Carry out a request. Every outcome is an answer; nothing is raised."""
        before = request_ids.suspend()
        try:
            return self._answer(message, report, is_gone)
        finally:
            request_ids.resume(before)

    def _answer(
        self, message: object, report: Report, is_gone: IsGone
    ) -> dict[str, Any]:
        name = ""
        if isinstance(message, dict):
            theirs = messages.protocol_of(message)
            if theirs != messages.PROTOCOL:
                LOG.warning("REFUSED a request of protocol %d", theirs)
                return messages.other_protocol(theirs)
        try:
            request = requests.request(message)
            name = request.call
            request_ids.enter(request.request_id)
            verb = self._table.get(name)
            if verb is None:
                raise HelperRefused(name, f"verbs are {', '.join(self._table)}")
            return {"value": _carried_out(verb, request, report, is_gone)}
        except DriverError as error:
            if isinstance(error, _REFUSALS):
                LOG.warning("REFUSED %s: %s", _shown(name), _shown(str(error)))
            return messages.error_answer(error)
        except Exception:
            LOG.exception("a fault in the helper")
            return messages.error_answer(_FAULT)


def _carried_out(
    verb: Verb, asked: requests.Request, report: Report, is_gone: IsGone
) -> Any:
    match verb:
        case LongVerb():
            return verb(asked.arguments, asked.timeout, report)
        case ChangeVerb():
            return verb(asked.arguments, asked.timeout, is_gone)
        case _:
            return verb(asked.arguments, asked.timeout)


def _report(connection: socket.socket) -> Report:
    """Return a function that sends the progress to the client, before the answer."""
    return lambda done: frames.send(connection, {"progress": done})


def _frame(answer: dict[str, Any]) -> bytes:
    """Return its frame. If it is not JSON, that is a fault, and answered as one."""
    try:
        return frames.encode(answer)
    except TypeError:
        LOG.exception("a fault in the helper: an answer that is not JSON")
        return frames.encode(messages.error_answer(_FAULT))


def _refuse(connection: socket.socket, why: str) -> None:
    """Send HelperBusy before any request has come, and close the connection."""
    LOG.error("refused a connection: %s", why)
    error = HelperBusy(why)
    with contextlib.suppress(OSError), connection:
        connection.setblocking(False)
        frames.send(connection, messages.error_answer(error))


def _shown(text: str) -> str:
    """Return text of a client as printable ASCII on one line of the log."""
    return ascii(text[:_MOST_SHOWN])[1:-1]
