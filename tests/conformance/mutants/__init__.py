# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fakes that each break one promise. The kit must notice every one of them.

A table has the mutant, and the behaviour of the kit at which it must be noticed.
"""

from __future__ import annotations

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from tests.conformance.mutants.abilities import CLAIMS
from tests.conformance.mutants.copies import COPIES
from tests.conformance.mutants.detach import DETACH
from tests.conformance.mutants.disks import DISKS
from tests.conformance.mutants.failures import FAILURES
from tests.conformance.mutants.killed import KILLED
from tests.conformance.mutants.lost_middle import LOST_MIDDLE
from tests.conformance.mutants.manage import MANAGE
from tests.conformance.mutants.shared_pool import SHARED_POOL
from tests.conformance.mutants.targets import TARGETS

Mutant = type[FakeVolumes] | type[FakeTarget]

#: By what they break; each table is a test of its own.
TABLES: dict[str, list[tuple[Mutant, str]]] = {
    "disks": [*DISKS],
    "copies": [*COPIES],
    "manage": [*MANAGE],
    "killed": [*KILLED],
    "lost middle": [*LOST_MIDDLE],
    "abilities": [*CLAIMS],
    "failures": [*FAILURES],
    "shared pool": [*SHARED_POOL],
    "targets": [*TARGETS],
    "detach": [*DETACH],
}
