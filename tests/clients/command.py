# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A command line client: what it prints, and whether it ended well."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.process import Process
from tests.clients.record import Entry, Record


class Command:
    """``cinder`` or ``openstack`` with one auth strategy."""

    def __init__(
        self, name: str, process: Process, strategy: str, record: Record
    ) -> None:
        self.name, self._process = name, process
        self._strategy, self._record = strategy, record

    def __call__(self, command: str, *words: str) -> str:
        """Run it; what it printed.

        It must end with exit code 0 and without a word on stderr.
        """
        code, out, errors = self._run(command, words)
        shown = f"{self.name} {command} {' '.join(words)}\n{out}{errors}"
        assert code == 0, shown
        assert not errors, shown
        self._record.add(Entry(self.name, command, self._strategy))
        return out

    def json(self, command: str, *words: str) -> Any:
        """Run a command of openstackclient; the value that it printed as JSON."""
        return json.loads(self(command, *words, "-f", "json"))

    def row(self, command: str, *words: str) -> dict[str, str]:
        """Run a command of cinder; its table of two columns."""
        rows = _cells(self(command, *words))
        return {cells[0]: cells[-1] for cells in rows}

    def rows(self, command: str, *words: str) -> list[dict[str, str]]:
        """Run a command of cinder; its table with one line per item."""
        titles, *rows = _cells(self(command, *words))
        return [dict(zip(titles, cells, strict=True)) for cells in rows]

    def fails(self, says: str, command: str, *words: str) -> None:
        """Run a command that must fail with this text; it is not recorded."""
        self._fail((says,), command, words)

    def refused(self, says: tuple[str, ...], command: str, *words: str) -> None:
        """Run a command for something that the node does not have.

        It must say one of the texts; the first one is recorded as the reason.
        """
        self._fail(says, command, words)
        self._record.add(Entry(self.name, command, self._strategy, says[0]))

    def _fail(
        self, says: tuple[str, ...], command: str, words: tuple[str, ...]
    ) -> None:
        code, out, errors = self._run(command, words)
        shown = f"{self.name} {command} {' '.join(words)}\n{out}{errors}"
        assert code != 0, shown
        assert any(text in " ".join(shown.split()) for text in says), shown

    def _run(self, command: str, words: tuple[str, ...]) -> tuple[int, str, str]:
        # A label may name the form: "create --image-id".
        code, out, errors = self._process.ask(*command.split(), *words)
        return code, out, errors


def _cells(table: str) -> list[list[str]]:
    """The rows of a table; a cell of several lines is one text."""
    rows: list[list[str]] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and cells[0]:
            rows.append(cells)
        elif cells:
            rows[-1] = [
                f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)
            ]
    return rows
