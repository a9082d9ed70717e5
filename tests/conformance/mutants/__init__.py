# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fakes that each break one promise. The kit must notice every one of them.

A table has the mutant, and the behaviour of the kit at which it must be noticed.
"""

from __future__ import annotations

from drivers.fake import FakeVolumes
from drivers.targets.fake import FakeTarget
from tests.conformance.mutants.beside import BESIDE
from tests.conformance.mutants.closing import CLOSING
from tests.conformance.mutants.copies import COPIES
from tests.conformance.mutants.disks import DISKS
from tests.conformance.mutants.handing import HANDING
from tests.conformance.mutants.killed import KILLED
from tests.conformance.mutants.middle import MIDDLE
from tests.conformance.mutants.targets import TARGETS
from tests.conformance.mutants.trouble import TROUBLE
from tests.conformance.mutants.words import WORDS

Mutant = type[FakeVolumes] | type[FakeTarget]

MUTANTS: list[tuple[Mutant, str]] = [
    *DISKS,
    *COPIES,
    *HANDING,
    *KILLED,
    *MIDDLE,
    *WORDS,
    *TROUBLE,
    *BESIDE,
    *TARGETS,
    *CLOSING,
]
