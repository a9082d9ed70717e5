# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fakes that each break one promise. The kit must notice every one of them.

A table has the mutant, and the behaviour of the kit at which it must be noticed.
"""

from __future__ import annotations

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
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

#: By what they break; each table is a test of its own.
TABLES: dict[str, list[tuple[Mutant, str]]] = {
    "disks": [*DISKS],
    "copies": [*COPIES],
    "handing": [*HANDING],
    "killed": [*KILLED],
    "middle": [*MIDDLE],
    "words": [*WORDS],
    "trouble": [*TROUBLE],
    "beside": [*BESIDE],
    "targets": [*TARGETS],
    "closing": [*CLOSING],
}
