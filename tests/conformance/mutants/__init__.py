# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Broken fakes: each breaks one promise, and the kit must notice it.

A table has each mutant with the behaviour that must fail.
"""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from tests.conformance.mutants.abilities import CLAIMS
from tests.conformance.mutants.at_once import AT_ONCE
from tests.conformance.mutants.blind import BLIND
from tests.conformance.mutants.blind_later import BLIND_LATER
from tests.conformance.mutants.blind_targets import BLIND_TARGETS
from tests.conformance.mutants.chains import CHAINS
from tests.conformance.mutants.clones import CLONES
from tests.conformance.mutants.copies import COPIES
from tests.conformance.mutants.detach import DETACH
from tests.conformance.mutants.discarded import DISCARDED
from tests.conformance.mutants.disks import DISKS
from tests.conformance.mutants.failures import FAILURES
from tests.conformance.mutants.far_bytes import FAR_BYTES
from tests.conformance.mutants.killed import KILLED
from tests.conformance.mutants.lost_middle import LOST_MIDDLE
from tests.conformance.mutants.manage import MANAGE
from tests.conformance.mutants.manage_snapshots import MANAGE_SNAPSHOTS
from tests.conformance.mutants.point_in_time import POINT_IN_TIME
from tests.conformance.mutants.reach import REACH
from tests.conformance.mutants.shared_pool import SHARED_POOL
from tests.conformance.mutants.storage_errors import STORAGE_ERRORS
from tests.conformance.mutants.targets import TARGETS

Mutant = type[FakeVolumes] | type[FakeTarget]

#: From what the mutants break to the mutants; each table is one test.
TABLES: dict[str, list[tuple[Mutant, str]]] = {
    "disks": [*DISKS],
    "copies": [*COPIES],
    "chains": [*CHAINS],
    "discarded": [*DISCARDED],
    "far bytes": [*FAR_BYTES],
    "at once": [*AT_ONCE],
    "clones": [*CLONES],
    "point in time": [*POINT_IN_TIME],
    "manage": [*MANAGE],
    "manage snapshots": [*MANAGE_SNAPSHOTS],
    "killed": [*KILLED],
    "lost middle": [*LOST_MIDDLE],
    "abilities": [*CLAIMS],
    "failures": [*FAILURES],
    "storage errors": [*STORAGE_ERRORS],
    "shared pool": [*SHARED_POOL],
    "targets": [*TARGETS],
    "reach": [*REACH],
    "detach": [*DETACH],
    "blind": [*BLIND, *BLIND_TARGETS, *BLIND_LATER],
}
