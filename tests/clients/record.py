# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What each client was asked with success, for docs/clients.md.

A command that a test ran is here only if the client ended it as it should.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One command of one client with one auth strategy.

    refusal: the sentence that the client showed, if the node does not have it.
    """

    client: str
    command: str
    strategy: str
    refusal: str = ""


class Record:
    """The entries of one run."""

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}

    def add(self, entry: Entry) -> None:
        """Add one, once."""
        self._entries[entry] = None

    def write(self, path: Path) -> None:
        """Write all of them."""
        path.write_text(json.dumps([asdict(each) for each in self._entries]))


def read(paths: Iterable[Path]) -> list[Entry]:
    """The entries in these files."""
    return [
        Entry(**fields) for path in paths for fields in json.loads(path.read_text())
    ]
