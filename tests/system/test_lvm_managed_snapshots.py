# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks and snapshots on real LVM. The kit has the usual case; these are edges.

udev opens a disk when it was written to, for a second on a busy node.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import (
    DiskBusy,
    LostSnapshot,
    UnknownReference,
    Unsupported,
)
from lunshare.drivers.values import Snapshot
from tests.system.lio_node import run
from tests.system.lvm_kit import GROUP, CountingRoot, build_lvm, fill, group, root

__all__ = ["group", "root"]
pytestmark = pytest.mark.system

SIZE = 8 * MIB


def snapshot_of(volume_id: str) -> Snapshot:
    return Snapshot(str(uuid.uuid4()), volume_id, SIZE)


@contextlib.contextmanager
def open_for_a_second(name: str) -> Iterator[None]:
    """udev reads it after that, and reports an event."""
    with Path(f"/dev/{GROUP}/{name}").open("r+b") as file:
        closing = threading.Timer(1.0, file.close)
        closing.start()
        yield
        closing.join()


def test_a_disk_that_is_open_briefly_is_managed(root: Root) -> None:
    """It is looked at after events of udev only: the write's, and maybe one before."""
    counting = CountingRoot(root)
    backend, volume = build_lvm(counting, lvm_type="default"), new_volume(SIZE)
    run("lvcreate", "-y", "-Wn", f"-L{SIZE}b", "-n", "theirs", GROUP)
    with open_for_a_second("theirs"):
        assert backend.manage(volume, "theirs").volume_id == volume.id
    assert counting.programs["lvs"] <= 4
    backend.delete(volume.id)


def test_a_snapshot_that_is_open_briefly_is_managed(root: Root) -> None:
    backend, volume = build_lvm(root, lvm_type="default"), new_volume(SIZE)
    backend.create(volume)
    origin, theirs = f"{GROUP}/{volume.name}", "their-snapshot"
    run("lvcreate", "-y", "-s", "-L4m", "-n", theirs, origin)
    snapshot = snapshot_of(volume.id)
    with open_for_a_second(theirs):
        backend.manage_snapshot(snapshot, theirs)
    with open_for_a_second(snapshot.name):
        backend.unmanage_snapshot(snapshot)
    run("lvremove", "-y", f"{GROUP}/unmanaged-{snapshot.id}")
    backend.delete(volume.id)


@pytest.mark.parametrize("kind", ["thin", "default"])
def test_a_snapshot_that_lvcreate_made_is_managed(root: Root, kind: str) -> None:
    """With its bytes, for the volume that LVM names, and for no other."""
    backend, volume, other = (
        build_lvm(root, lvm_type=kind),
        new_volume(SIZE),
        new_volume(SIZE),
    )
    backend.create(volume)
    backend.create(other)
    fill(volume.name, b"before")
    space = () if kind == "thin" else ("-L4m",)
    of = f"{GROUP}/{volume.name}"
    run("lvcreate", "-y", "--snapshot", *space, "-n", "theirs", of)
    fill(volume.name, b"after!")
    (found,) = backend.manageable_snapshots()
    assert (found.reference, found.size) == ("theirs", SIZE)
    assert (found.volume_id, found.problem) == (volume.id, "")
    with pytest.raises(UnknownReference):
        backend.manage_snapshot(snapshot_of(other.id), "theirs")
    snapshot = snapshot_of(volume.id)
    backend.manage_snapshot(snapshot, "theirs")
    assert backend.snapshots() == (snapshot.id,)
    copy = new_volume(SIZE)
    path = backend.create_from(copy, snapshot).path
    assert Path(path).read_bytes().startswith(b"before")
    backend.revert(snapshot)
    assert Path(backend.disk(volume.id).path).read_bytes().startswith(b"before")
    backend.delete_snapshot(snapshot.id)
    for each in (volume, other, copy):
        backend.delete(each.id)


@pytest.mark.parametrize("kind", ["thin", "default"])
def test_a_volume_keeps_its_foreign_snapshots(root: Root, kind: str) -> None:
    """A thick snapshot needs its volume, a thin one does not."""
    backend, volume = build_lvm(root, lvm_type=kind), new_volume(SIZE)
    backend.create(volume)
    snapshot = snapshot_of(volume.id)
    backend.create_snapshot(snapshot)
    backend.unmanage_snapshot(snapshot)
    name = f"unmanaged-{snapshot.id}"
    if kind == "thin":
        backend.delete(volume.id)
        assert backend.manageable_snapshots() == ()
        assert name in [each.reference for each in backend.manageable()]
        run("lvremove", "-y", f"{GROUP}/{name}")
        return
    for verb in (backend.delete, backend.unmanage):
        with pytest.raises(DiskBusy, match="snapshots"):
            verb(volume.id)
    backend.manage_snapshot(snapshot, name)
    backend.delete_snapshot(snapshot.id)
    backend.delete(volume.id)


def test_an_older_snapshot_of_a_reverted_thin_volume_stays(root: Root) -> None:
    """LVM does not know any more whose snapshot it is: it could not come back."""
    thin, volume = build_lvm(root), new_volume(SIZE)
    thin.create(volume)
    old, new = snapshot_of(volume.id), snapshot_of(volume.id)
    for each in (old, new):
        thin.create_snapshot(each)
    thin.revert(new)
    for each in (old, new):
        with pytest.raises(Unsupported, match="reverted"):
            thin.unmanage_snapshot(each)
    assert set(thin.snapshots()) == {old.id, new.id}
    for each in (old, new):
        thin.delete_snapshot(each.id)
    thin.delete(volume.id)


def test_an_overflowed_snapshot_is_not_unmanaged_or_managed(root: Root) -> None:
    thick, volume = build_lvm(root, lvm_type="default"), new_volume(SIZE)
    thick.create(volume)
    own = snapshot_of(volume.id)
    thick.create_snapshot(own)
    of = f"{GROUP}/{volume.name}"
    run("lvcreate", "-y", "--snapshot", "-L4m", "-n", "theirs", of)
    run("lvreduce", "-y", "-qq", "-f", "-L4m", f"{GROUP}/{own.name}")
    fill(volume.name, b"x" * SIZE)
    with pytest.raises(LostSnapshot):
        thick.unmanage_snapshot(own)
    (found,) = thick.manageable_snapshots()
    assert "lost" in found.problem
    with pytest.raises(UnknownReference, match="lost"):
        thick.manage_snapshot(snapshot_of(volume.id), "theirs")
    run("lvremove", "-y", f"{GROUP}/theirs")
    thick.delete_snapshot(own.id)
    thick.delete(volume.id)
