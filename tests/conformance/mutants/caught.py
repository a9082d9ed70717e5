# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which behaviours of the kit must fail with which broken fake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget

Mutant = type[FakeVolumes] | type[FakeTarget]
M = TypeVar("M", bound=Mutant)

#: From what the mutants break, the name of their file, to the mutants, each with a
#: behaviour.
TABLES: dict[str, list[tuple[Mutant, str]]] = defaultdict(list)


def caught_by(*behaviours: str) -> Callable[[M], M]:
    """The kit must notice this mutant at each of these behaviours."""

    def note(mutant: M) -> M:
        table = TABLES[mutant.__module__.rpartition(".")[2]]
        table.extend((mutant, name) for name in behaviours)
        return mutant

    return note
