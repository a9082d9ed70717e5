# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the storage process: one connection for each thread.

A request is ``(role, key, verb, arguments, named)``, an answer ``(True, value)`` or
``(False, error)``; both are pickled, since the processes trust each other.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from multiprocessing.connection import Client, Connection
from typing import Any

from lunshare.drivers.errors import DeadlineExceeded, HelperUnreachable


class StorageClient:
    """A client of the storage process, for any number of threads."""

    def __init__(self, path: str, patience: float | None = None) -> None:
        """``patience``: seconds after which a call fails; None waits for ever."""
        self._path, self._patience = path, patience
        self._local = threading.local()

    def call(
        self, role: str, key: object, verb: str, *given: object, **named: object
    ) -> Any:
        """Call a verb; raises the error that it raised there.

        :raises DeadlineExceeded: it took too long; it may still be done.
        :raises HelperUnreachable: the storage process does not listen.
        """
        try:
            worked, value = self._exchange((role, key, verb, given, named))
        except TimeoutError:
            raise DeadlineExceeded(f"storm: {verb}", self._patience or 0.0) from None
        except (EOFError, OSError) as error:
            self._forget()
            raise HelperUnreachable(self._path, str(error)) from None
        if worked:
            return value
        raise _error(*value)

    def _exchange(self, request: object) -> Any:
        connection = self._connection()
        connection.send(request)
        if self._patience is not None and not connection.poll(self._patience):
            self._forget()
            raise TimeoutError
        return connection.recv()

    def _connection(self) -> Connection:
        held: Connection | None = getattr(self._local, "connection", None)
        if held is None:
            held = self._local.connection = Client(self._path, "AF_UNIX")
        return held

    def _forget(self) -> None:
        held = getattr(self._local, "connection", None)
        self._local.connection = None
        if held is not None:
            with contextlib.suppress(OSError):
                held.close()


def parts(error: BaseException) -> tuple[str, str, tuple[Any, ...], dict[str, Any]]:
    """An error as it crosses the socket: errors with fields cannot be pickled."""
    kind = type(error)
    return kind.__module__, kind.__qualname__, error.args, dict(vars(error))


def _error(
    module: str, name: str, args: tuple[Any, ...], fields: dict[str, Any]
) -> BaseException:
    kind = getattr(importlib.import_module(module), name)
    error: BaseException = kind.__new__(kind)
    error.args = args
    vars(error).update(fields)
    return error
