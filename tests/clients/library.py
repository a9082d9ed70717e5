# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A client that is a library: its methods, called in its own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.clients.process import Process
from tests.clients.record import Entry, Record


class Library:
    """Each attribute is a method of the client's object; a call of it is recorded."""

    def __init__(
        self, name: str, process: Process, strategy: str, record: Record
    ) -> None:
        self._name, self._process = name, process
        self._strategy, self._record = strategy, record

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            value, error = self._process.ask(method, words, named)
            assert error is None, f"{method}{words}{named}: {error}"
            self._record.add(Entry(self._name, method, self._strategy))
            return value

        return call

    def fails(self, says: str, method: str, *words: Any, **named: Any) -> None:
        """Call a method that must raise this text; it is not recorded."""
        value, error = self._process.ask(method, words, named)
        assert error is not None, value
        assert says in error, error

    def refused(self, sentence: str, method: str, *words: Any, **named: Any) -> None:
        """Call a method for something that the node does not have."""
        self.fails(sentence, method, *words, **named)
        self._record.add(Entry(self._name, method, self._strategy, sentence))
