# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who calls: the options that a daemon gets, and the headers of every request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Caller:
    """Lines of [DEFAULT] for the daemon, who calls, and headers that prove it."""

    project: str
    options: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def noauth(path: Path) -> Iterator[Caller]:
    """Everyone is an administrator."""
    yield Caller("default")


#: A strategy may write files into the folder, and run a server until it is left.
STRATEGIES: Mapping[str, Callable[[Path], AbstractContextManager[Caller]]] = {
    "noauth": noauth,
}
