# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Writes that the kernel takes a part of only: no byte is lost, or it is an error.

A limit on the size of this process's files makes real ones: a write across the limit
is cut off there, and the next one fails with EFBIG, as on a full file system the next
one fails with ENOSPC.
"""

from __future__ import annotations

import os
import resource
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lunshare.drivers import migration
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.errors import NoSpace
from lunshare.drivers.values import Snapshot
from tests.unit.nfs_fixtures import build, driver, files, mounts, node
from tests.unit.test_helper_copying import MIB, Root, disk

__all__ = ["build", "driver", "files", "mounts", "node"]

KIB = 1024


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond ``size``; Python ignores SIGXFSZ."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_migration_with_a_short_last_write_fails(tmp_path: Path) -> None:
    """512 KiB were lost so, success was said, and the source was then deleted."""
    data = os.urandom(3 * MIB)
    source, target = disk(tmp_path, data, 3 * MIB), disk(tmp_path, size=3 * MIB)
    with files_end_at(2 * MIB + 512 * KIB), pytest.raises(NoSpace):
        migration.fill(Root(), target, source, 10)
    migration.fill(Root(), target, source, 10)
    assert Path(target.path).read_bytes() == data


@pytest.mark.parametrize("preallocate", [False, True])
def test_snapshot_with_a_short_last_write_leaves_nothing(
    build, driver, files, preallocate: bool
) -> None:
    thick = build(nfs_sparsed_volumes=not preallocate)
    volume = new_volume(3 * MIB)
    path, data = Path(thick.create(volume).path), os.urandom(3 * MIB)
    path.write_bytes(data)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, 3 * MIB)
    with files_end_at(2 * MIB + 512 * KIB), pytest.raises(NoSpace):
        thick.create_snapshot(snapshot)
    assert [each.name for each in files.iterdir()] == [volume.name]
    thick.create_snapshot(snapshot)
    assert (files / snapshot.name).read_bytes() == data
