# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign snapshots in the LVM driver: which are offered, managed and unmanaged."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.drivers.errors import (
    DiskBusy,
    LostSnapshot,
    UnknownReference,
    Unsupported,
)
from lunshare.drivers.lvm import LvmVolumes, brief_opens
from lunshare.drivers.values import ManageableSnapshot, Snapshot
from tests.unit.lvm_answers import (
    GROUP,
    OTHER,
    SNAPSHOT,
    UUID,
    Scripted,
    driver,
    row,
    rows,
    thick,
)

VOLUME = f"volume-{UUID}"
THIN = {"pool_lv": "pool", "lv_layout": "thin,sparse"}


def backend(root: Scripted, thin: bool) -> LvmVolumes:
    return driver(root) if thin else thick(root)


def report(thin: bool, *snapshots: dict[str, Any]) -> str:
    """A volume, and these logical volumes, in the pool or as thick ones."""
    common = THIN if thin else {}
    made = [row(each.pop("name"), **{**common, **each}) for each in snapshots]
    return rows(row(VOLUME, **common), *made)


@pytest.mark.parametrize("thin", [True, False])
def test_only_foreign_snapshots_of_own_volumes_are_offered(thin: bool):
    elsewhere = {"pool_lv": "other" if thin else "pool"}
    text = report(
        thin,
        {"name": "theirs", "origin": VOLUME, "lv_size": "8388608"},
        {"name": SNAPSHOT.name, "origin": VOLUME},
        {"name": f"volume-{OTHER}", "origin": SNAPSHOT.name},
        {"name": "root"},
        {"name": "snap-of-root", "origin": "root"},
        {"name": "snap-of-nothing", "origin": ""},
        {"name": "beside", "origin": VOLUME, **elsewhere},
    )
    found = backend(Scripted(lvs=text), thin).manageable_snapshots()
    assert found == (ManageableSnapshot("theirs", 8 << 20, UUID),)


def test_a_thick_snapshot_is_as_large_as_its_volume():
    """LVM reports the size of its reserve."""
    text = report(False, {"name": "theirs", "origin": VOLUME, "lv_size": "4096"})
    (found,) = thick(Scripted(lvs=text)).manageable_snapshots()
    assert found.size == 8 << 20


@pytest.mark.parametrize("thin", [True, False])
def test_an_inactive_snapshot_can_be_managed(thin: bool):
    """Thin ones are made so. LVM then does not know whether the device is writable."""
    given = {"lv_permissions": "unknown", "lv_device_open": "unknown"}
    root = Scripted(lvs=report(thin, {"name": "theirs", "origin": VOLUME, **given}))
    (found,) = backend(root, thin).manageable_snapshots()
    assert found.problem == ""


@pytest.mark.parametrize("thin", [True, False])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lv_permissions": "read-only"}, "read-only"),
        ({"lv_snapshot_invalid": "snapshot invalid"}, "lost"),
        ({"lv_merging": "merging"}, "merged"),
    ],
)
def test_an_unsuitable_snapshot_cannot_be_managed(thin: bool, given: Any, why: str):
    text = report(thin, {"name": "theirs", "origin": VOLUME, **given})
    root = Scripted(lvs=text)
    (found,) = backend(root, thin).manageable_snapshots()
    assert why in found.problem
    with pytest.raises(UnknownReference, match=why):
        backend(root, thin).manage_snapshot(SNAPSHOT, "theirs")
    assert {argv[0] for argv in root.commands} == {"lvs"}


@pytest.mark.parametrize("thin", [True, False])
def test_manage_and_unmanage_are_one_rename_each(thin: bool):
    foreign = {"name": f"unmanaged-{OTHER}", "origin": VOLUME}
    root = Scripted(lvs=report(thin, foreign), lvrename="")
    backend(root, thin).manage_snapshot(SNAPSHOT, f"unmanaged-{OTHER}")
    rename = ("lvrename", GROUP, f"unmanaged-{OTHER}", SNAPSHOT.name)
    assert root.commands[-1] == rename
    own = {"name": SNAPSHOT.name, "origin": VOLUME}
    root = Scripted(lvs=report(thin, own), lvrename="")
    backend(root, thin).manage_snapshot(SNAPSHOT, f"unmanaged-{OTHER}")
    assert [argv[0] for argv in root.commands] == ["lvs"]
    root = Scripted(lvs=report(thin, dict(own) | {"name": SNAPSHOT.name}), lvrename="")
    backend(root, thin).unmanage_snapshot(SNAPSHOT)
    assert root.commands[-1] == (*rename[:2], SNAPSHOT.name, f"unmanaged-{OTHER}")


@pytest.mark.parametrize("thin", [True, False])
def test_a_snapshot_of_another_volume_is_not_managed(thin: bool):
    text = report(thin, {"name": "theirs", "origin": VOLUME})
    root = Scripted(lvs=text)
    other = Snapshot(UUID, OTHER, 8 << 20)
    for name in ("theirs", VOLUME, SNAPSHOT.name, "none", "-d", "a/b"):
        with pytest.raises(UnknownReference):
            backend(root, thin).manage_snapshot(other, name)
    assert {argv[0] for argv in root.commands} == {"lvs"}


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"lv_device_open": "open"}, DiskBusy, "is open"),
        ({"lv_snapshot_invalid": "snapshot invalid"}, LostSnapshot, "reserve"),
        ({"origin": ""}, Unsupported, "reverted"),
    ],
)
def test_a_snapshot_that_could_not_be_managed_again_is_not_unmanaged(
    monkeypatch: pytest.MonkeyPatch, given: Any, error: type[Exception], why: str
):
    monkeypatch.setattr(brief_opens, "_SECONDS", 0.0)
    text = report(True, {"name": SNAPSHOT.name, "origin": VOLUME, **given})
    root = Scripted(lvs=text)
    with pytest.raises(error, match=why):
        driver(root).unmanage_snapshot(SNAPSHOT)
    assert {argv[0] for argv in root.commands} == {"lvs"}


def test_an_open_foreign_snapshot_is_not_managed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(brief_opens, "_SECONDS", 0.0)
    opened = {"name": "theirs", "origin": VOLUME, "lv_device_open": "open"}
    with pytest.raises(DiskBusy, match="theirs"):
        driver(Scripted(lvs=report(True, opened))).manage_snapshot(SNAPSHOT, "theirs")


def test_a_snapshot_outside_the_pool_is_not_unmanaged():
    text = report(True, {"name": SNAPSHOT.name, "origin": VOLUME, "pool_lv": "other"})
    root = Scripted(lvs=text)
    driver(root).unmanage_snapshot(SNAPSHOT)
    assert {argv[0] for argv in root.commands} == {"lvs"}
