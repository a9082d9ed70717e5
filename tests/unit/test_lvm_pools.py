# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Two backends of one group, thin and thick: neither touches the other's volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lunshare.drivers.errors import (
    CommandFailed,
    ForeignBytes,
    UnknownDisk,
    UnknownSnapshot,
    Unsupported,
)
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.values import Volume
from tests.unit.lvm_answers import (
    GROUP,
    OTHER,
    SNAPSHOT,
    THIN_POOL,
    UUID,
    Answering,
    driver,
    failed,
    full,
    pool_status,
    row,
    rows,
    thick,
)

VOLUME = Volume(UUID, 8 << 20)
THIN = {"pool_lv": "pool", "lv_layout": "thin,sparse"}
EXISTS = failed(f'  Logical Volume "{VOLUME.name}" already exists in volume group "x"')
# What each backend finds in the group: all of it belongs to the other.
OTHERS: dict[Callable[..., LvmVolumes], str] = {
    driver: rows(
        row(VOLUME.name),
        row(SNAPSHOT.name, origin=VOLUME.name),
        row(f"{VOLUME.name}.revert"),
    ),
    thick: rows(
        row(VOLUME.name, **THIN),
        row(SNAPSHOT.name, origin=VOLUME.name, **THIN),
        row(f"{VOLUME.name}.new", **THIN),
    ),
}


def others(build: Callable[..., LvmVolumes]) -> tuple[LvmVolumes, Answering]:
    root = Answering(THIN_POOL, lvs=OTHERS[build], lvcreate=EXISTS)
    return build(root), root


def changed(root: Answering) -> set[str]:
    return {argv[0] for argv in root.commands} - {"lvs", "lvm.pool", "lvcreate"}


@pytest.mark.parametrize("build", [driver, thick])
def test_volume_whose_name_the_other_backend_uses_is_refused(build):
    backend, root = others(build)
    with pytest.raises(Unsupported, match="backend in another volume group"):
        backend.create(VOLUME)
    with pytest.raises(Unsupported, match="backend in another volume group"):
        backend.create_from(VOLUME, SNAPSHOT)
    with pytest.raises(Unsupported, match="backend in another volume group"):
        backend.manage(VOLUME, "theirs")
    assert changed(root) == set()


@pytest.mark.parametrize("build", [driver, thick])
def test_volume_of_the_other_backend_is_unknown(build):
    backend, root = others(build)
    for call in (backend.create_snapshot, backend.revert):
        with pytest.raises(UnknownDisk):
            call(SNAPSHOT)
    backend.unmanage(UUID)
    assert changed(root) == set()
    assert "lvcreate" not in {argv[0] for argv in root.commands}


@pytest.mark.parametrize("build", [driver, thick])
def test_snapshot_of_the_other_backend_is_unknown(build):
    backend, root = others(build)
    refused = failed("  an LVM error about a snapshot of the other kind")
    root._answers["lvcreate"] = refused
    with pytest.raises(UnknownSnapshot):
        backend.create_from(Volume(OTHER, 8 << 20), SNAPSHOT)
    assert changed(root) == set()


def test_delete_of_a_thin_volume_names_its_pool():
    root = Answering(THIN_POOL, lvremove="")
    driver(root).delete(UUID)
    driver(root).delete_snapshot(OTHER)
    assert len(root.commands) == 2
    for argv in root.commands:
        assert argv[argv.index("--select") + 1].startswith('pool_lv="pool" && (')


def test_delete_of_a_thick_volume_ignores_thin_ones():
    backend, root = others(thick)
    backend.delete(UUID)
    assert changed(root) == set()
    root._answers["lvremove"] = ""
    backend.delete_snapshot(OTHER)
    assert root.commands[-1][-2].startswith('pool_lv="" && (')


def test_error_of_a_failed_copy_is_raised():
    error = failed("  Insufficient something")
    text = rows(row(SNAPSHOT.name, **THIN))
    root = Answering(THIN_POOL, lvs=text, lvcreate=error)
    with pytest.raises(CommandFailed, match="Insufficient something"):
        driver(root).create_from(VOLUME, SNAPSHOT)


def test_revert_keeps_its_copy_if_a_retry_removed_the_volume():
    """A duplicate request removed the volume: only its .revert is left."""
    text = rows(
        row(VOLUME.name, **THIN), row(SNAPSHOT.name, origin=VOLUME.name, **THIN)
    )
    not_found = failed(f'  Failed to find logical volume "{GROUP}/{VOLUME.name}"')
    root = Answering(THIN_POOL, lvs=text, lvcreate="", lvremove=not_found, lvrename="")
    driver(root)._snapshots.revert(SNAPSHOT)
    removed = [argv[-1] for argv in root.commands if argv[0] == "lvremove"]
    assert removed == [f"{GROUP}/{VOLUME.name}"]
    assert root.commands[-1][0] == "lvrename"


class FailingAfterRemoval(Answering):
    """lvremove removes the volume, and fails then.

    Of a thin volume it commits the removal first, and sends the pool's message after
    that ("Failed to update pool", lv_remove_single in lib/metadata/lv_manip.c).
    """

    def __init__(self) -> None:
        super().__init__(THIN_POOL, lvcreate="", lvrename="")
        self.left = {VOLUME.name, SNAPSHOT.name}
        self._answers["lvremove"] = failed(f"  Failed to update pool {GROUP}/pool.")

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        if argv[0] == "lvcreate":
            self.left.add(argv[argv.index("-n") + 1])
        if argv[0] == "lvremove":
            self.left.discard(argv[-1].partition("/")[2])
        if argv[0] == "lvrename":
            self.left.remove(argv[-2])
            self.left.add(argv[-1])
        self._answers["lvs"] = rows(*[row(name, **THIN) for name in sorted(self.left)])
        return super().run(*argv, timeout=timeout)


def test_revert_keeps_its_copy_if_the_failed_removal_has_removed_the_volume():
    """The copy was removed as well: the volume had no disk, and no way out."""
    root = FailingAfterRemoval()
    driver(root)._snapshots.revert(SNAPSHOT)
    assert root.left == {VOLUME.name, SNAPSHOT.name}


@pytest.mark.parametrize("verb", ["create", "create_snapshot", "create_from", "clone"])
def test_what_exists_already_needs_no_space(verb):
    """The first call was killed after its effect, and the pool is full by now."""
    text = rows(*(row(each.name, **THIN) for each in (VOLUME, SNAPSHOT)))
    root = Answering(
        THIN_POOL,
        pool_status(99.0, 1.0),
        lvs=text,
        lvcreate=EXISTS,
        lvextend=failed("  New size (2 extents) matches existing size (2 extents)."),
    )
    backend, source = driver(root), Volume(OTHER, 8 << 20)
    copies: Any = backend._snapshots
    calls = {
        "create": lambda: backend._kind.create(VOLUME),
        "create_snapshot": lambda: backend.create_snapshot(SNAPSHOT),
        "create_from": lambda: copies.create_from(VOLUME, SNAPSHOT),
        "clone": lambda: copies.clone(VOLUME, source),
    }
    calls[verb]()


def test_new_volume_with_mapped_blocks_gets_another_name():
    """The kernel had a thin device of its number, with another volume's bytes."""
    root = Answering(THIN_POOL, lvrename="")
    volumes = driver(root)
    volumes.require_empty(VOLUME.id)
    assert [argv[0] for argv in root.commands] == ["lvm.mapped"]
    root.mapped = "512 511"
    with pytest.raises(ForeignBytes, match=f"had bytes.* is {GROUP}/unmanaged-"):
        volumes.require_empty(VOLUME.id)
    assert root.commands[-1][-2:] == (VOLUME.name, f"unmanaged-{VOLUME.id}")


def test_pool_that_the_kernel_has_changed_without_lvm_is_closed():
    known, ahead = (f"{count}{pool_status(50, 1)[1:]}" for count in (9, 10))
    root = Answering(THIN_POOL, ahead, lvs=rows())
    assert "counts 10 changes of its thin devices and LVM 9" in closed(root)
    root.pool = known
    assert closed(root) == ""


def test_pool_that_lvm_changes_at_this_moment_is_open():
    class Changing(Answering):
        def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
            if verb == "lvm.pool":
                self.changes += 1
                self.pool = f"{self.changes}{pool_status(50, 1)[1:]}"
            return super().call(verb, timeout=timeout, **arguments)

        changes = 9

    root = Changing(THIN_POOL, lvs=rows())
    assert closed(root) == ""


def test_pool_that_lvm_refuses_for_its_number_of_changes_has_space():
    """What lvm2 2.03.16 says; a client would free space in vain."""
    error = full(
        "  WARNING: Thin pool g1/p has unexpected transaction id 2, expecting 1.\n"
        "  Cannot create new thin volume, free space in thin pool g1/p reached"
        " threshold.\n"
    )
    root = Answering(THIN_POOL, lvcreate=error)
    with pytest.raises(CommandFailed, match="unexpected transaction id 2"):
        driver(root).create(VOLUME)


def closed(root: Answering) -> str:
    return driver(root).capacity().closed
