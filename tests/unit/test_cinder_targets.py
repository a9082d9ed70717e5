# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which targets the helper takes for its own, asked for with crafted requests."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.errors import TargetFailed
from lunshare.helper.commands import Commands
from lunshare.helper.lio import backstores
from lunshare.helper.lio.backstores import Role
from lunshare.helper.main import verbs
from lunshare.helper.mounts import KERNEL
from lunshare.helper.served import Served
from lunshare.helper.verbs import ChangeVerb, LongVerb, never_gone
from tests.unit.configfs_tree import PREFIX, Tree, link

ROOT = Path(__file__).resolve().parents[2]
ID = "6b1f5a52-31c2-4f0e-9f39-5a5c0b8b3c11"
IQN = f"{PREFIX}volume-{ID}"
HOST, OTHER = (f"iqn.1994-05.com.example:{name}" for name in ("host", "other"))
SERVED = "cinder-volumes"
_NUMBER = next(backstores._numbers(ID, Role.WRITERS))  # of lunshare's own HBA

Ask = Callable[..., Any]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path / "configfs", monkeypatch)


@pytest.fixture
def ask(tree: Tree) -> Ask:
    """Ask a helper with or without the option."""

    def send(takeover: bool, verb: str, **arguments: Any) -> Any:
        served = Served(
            PREFIX,
            groups=(SERVED,),
            directories=(str(tree.root.parent),),
            takeover=takeover,
        )
        commands = Commands(str(ROOT / "rootwrap.d"), ("/usr/bin",), served)
        found = verbs(served, commands, KERNEL)[verb]
        if isinstance(found, ChangeVerb):
            return found(arguments, 5, never_gone)
        assert not isinstance(found, LongVerb)
        return found(arguments, 5)

    return send


def wanted(*hosts: str, only: list[str] | None = None) -> dict[str, Any]:
    fields = {"mode": "rw", "attachment_id": "a", "auth": None}
    disk = {"path": f"/dev/{SERVED}/volume-{ID}", "size": 4096, "kind": "block"}
    return {
        "volume_id": ID,
        "disk": disk if hosts else None,
        "connectors": [{"initiator": each, **fields} for each in hosts],
        "portals": [],
        "only": only,
        "reservations": False,
    }


REQUESTS = {
    "remove": ("lio.remove", {"volume_id": ID}),
    "close every host": ("lio.apply", wanted()),
    "close a host": ("lio.apply", wanted(only=[HOST])),
    "another host": ("lio.apply", wanted(OTHER)),
    "one host more": ("lio.apply", wanted(OTHER, only=[OTHER])),
}


def of_another_group(tree: Tree) -> None:
    """Another group of the node is still Cinder's, with the same prefix."""
    store = tree.backstore("iblock_3", IQN, "253:9", "cinder-fast")
    link(tree.target(ID, HOST), store)


def of_another_volume(tree: Tree) -> None:
    """The backstore has the right name, and another volume's disk."""
    store = tree.backstore("iblock_3", IQN, "253:9", SERVED)
    tree.mapped["253:9"] = tree.mapped["253:9"].replace(ID[:8], "0" * 8)
    link(tree.target(ID, HOST), store)


def of_a_file(tree: Tree) -> None:
    """fileio shows no numbers of its disk."""
    store = tree.backstore("fileio_3", IQN, "253:9", SERVED)
    (store / "info").write_text("Status: ACTIVATED\n")
    link(tree.target(ID, HOST), store)


def with_two_luns(tree: Tree) -> None:
    group = tree.target(ID, HOST)
    link(group, tree.backstore("iblock_3", IQN, "253:9", SERVED))
    link(group, tree.backstore("iblock_4", "volume-of-others", "253:8", "x"), "lun_1")


def with_a_lun_of_another_number(tree: Tree) -> None:
    store = tree.backstore("iblock_3", "volume-of-others", "253:8", "x")
    link(tree.target(ID, HOST), store, "lun_5")


def with_two_portal_groups(tree: Tree) -> None:
    group = tree.target(ID, HOST)
    link(group, tree.backstore("iblock_3", IQN, "253:9", SERVED))
    (group.parent / "tpgt_2").mkdir()


def half_created(tree: Tree) -> None:
    """cinder-rtstool was killed before it linked the LUN, for another group."""
    tree.backstore("iblock_3", IQN, "253:9", "cinder-fast")
    tree.target(ID)


FOREIGN = [
    of_another_group,
    of_another_volume,
    of_a_file,
    with_two_luns,
    with_a_lun_of_another_number,
    with_two_portal_groups,
    half_created,
]


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("make", FOREIGN)
def test_target_that_only_looks_like_cinders_is_left_alone(
    tree: Tree, ask: Ask, make: Callable[[Tree], None], request_: str
) -> None:
    make(tree)
    before = tree.snapshot()
    verb, arguments = REQUESTS[request_]
    with pytest.raises(TargetFailed, match=f"another program has created {IQN}, with"):
        ask(True, verb, **arguments)
    assert tree.snapshot() == before


@pytest.mark.parametrize("request_", REQUESTS)
def test_without_the_option_nothing_is_touched(
    tree: Tree, ask: Ask, request_: str
) -> None:
    link(tree.target(ID, HOST), tree.backstore("iblock_3", IQN, "253:9", SERVED))
    before = tree.snapshot()
    verb, arguments = REQUESTS[request_]
    with pytest.raises(TargetFailed, match="take_over_cinder_targets"):
        ask(False, verb, **arguments)
    assert tree.snapshot() == before


@pytest.mark.parametrize("make", FOREIGN)
def test_foreign_target_is_not_in_the_list(
    tree: Tree, ask: Ask, make: Callable[[Tree], None]
) -> None:
    """lunshare-helper exports --all --yes would remove what the list has."""
    make(tree)
    assert ask(True, "lio.observe") == []
    assert ask(True, "lio.live", volume_id=ID) is None


@pytest.mark.parametrize("takeover", [True, False])
def test_target_of_the_driver_is_in_the_list_if_it_may_be_taken_over(
    tree: Tree, ask: Ask, takeover: bool
) -> None:
    link(tree.target(ID, HOST), tree.backstore("iblock_3", IQN, "253:9", SERVED))
    found = [each["volume_id"] for each in ask(takeover, "lio.observe")]
    assert found == ([ID] if takeover else [])
    assert bool(ask(takeover, "lio.live", volume_id=ID)) is takeover


def test_acl_that_is_removed_while_it_is_listed_is_left_out(
    tree: Tree, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last attribute was read without expecting that: the whole list failed.

    In it the kernel shows the session, and it is there as long as the ACL.
    """
    group = tree.target(ID, HOST, OTHER)
    link(group, tree.backstore("iblock_3", IQN, "253:9", SERVED))
    open_ = os.open

    def opening(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(path).endswith(f"{HOST}/info"):
            raise FileNotFoundError(errno.ENOENT, "removed", path)
        return open_(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", opening)
    (found,) = ask(True, "lio.observe")
    assert [each["initiator"] for each in found["connectors"]] == [OTHER]


def test_half_removed_target_of_the_driver_is_removed(tree: Tree, ask: Ask) -> None:
    """Killed when the LUN was unlinked: its backstore is found by its name."""
    tree.backstore("iblock_3", IQN, "253:9", SERVED)
    tree.target(ID)
    ask(True, "lio.remove", volume_id=ID)
    assert tree.objects() == []


def test_backstore_that_a_removed_target_has_left_is_removed(
    tree: Tree, ask: Ask
) -> None:
    tree.backstore("iblock_3", IQN, "253:9", SERVED)
    kept = tree.backstore("iblock_4", IQN, "253:8", "cinder-fast")
    ask(True, "lio.remove", volume_id=ID)
    assert tree.objects() == [kept]


def test_target_of_the_driver_is_removed_with_its_backstore(
    tree: Tree, ask: Ask
) -> None:
    link(tree.target(ID, HOST), tree.backstore("iblock_3", IQN, "253:9", SERVED))
    ask(True, "lio.remove", volume_id=ID)
    assert tree.objects() == []


@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("name", [IQN, f"volume-{ID}"], ids=["of Cinder", "of ours"])
def test_target_that_rtslib_has_restored_is_removed_with_its_backstore(
    tree: Tree, ask: Ask, name: str, takeover: bool
) -> None:
    """After a reboot: rtslib keeps the name of the link, and numbers the HBA anew.

    The backstore was left, and the disk could not be opened or removed any more.
    """
    store = tree.backstore("iblock_0", name, "253:9", SERVED)
    link(tree.target(ID), store, name=f"volume-{ID}")
    ask(takeover, "lio.remove", volume_id=ID)
    assert tree.objects() == []


# a host without an ACL: tests/system/test_lio_takeover.py has one with a session


@pytest.mark.parametrize(
    "name", ["../../../core/x", "iqn.1994-05.com.example:a/b", "."]
)
def test_name_of_a_host_without_an_acl_is_not_used_as_a_path(
    tree: Tree, ask: Ask, name: str
) -> None:
    """The kernel takes any name that a host sends."""
    group = tree.target(ID, HOST)
    link(group, tree.backstore("iblock_3", IQN, "253:9", SERVED))
    (group / "dynamic_sessions").write_text(f"{name}\n\0")
    before = tree.snapshot()
    for only in (None, [HOST]):
        with pytest.raises(TargetFailed, match="is logged in without an ACL"):
            ask(True, "lio.apply", **wanted(HOST, only=only))
    assert tree.snapshot() == before


# the option is switched off again


def test_target_of_the_driver_keeps_its_backstore(tree: Tree, ask: Ask) -> None:
    group, store = _running(tree, "iblock_3", "0a5e")
    changed = ask(True, "lio.apply", **wanted(HOST))
    assert not [each for each in changed if "created" in each or "removed" in each]
    assert (group / "enable").read_text() == "1"
    assert (store / "enable").read_text() == "1"


def test_export_created_with_the_option_stays_without_it(tree: Tree, ask: Ask) -> None:
    """Its backstore has the name that Cinder's driver would find.

    It was removed as incomplete, and could not be created again: the backstore of that
    name still had the disk. Every host had lost it.
    """
    group, store = _running(tree, f"iblock_{_NUMBER}", f"volume-{ID}")
    (store / "wwn/vpd_unit_serial").write_text(f"T10 VPD Unit Serial Number: {ID}\n")
    changed = ask(False, "lio.apply", **wanted(HOST))
    assert not [each for each in changed if "created" in each or "removed" in each]
    assert (group / "enable").read_text() == "1"
    assert list(backstores.existing(ID, prefix=PREFIX)) == [str(store)]


def _running(tree: Tree, hba: str, name: str) -> tuple[Path, Path]:
    store, group = tree.backstore(hba, IQN, "253:9", SERVED), tree.target(ID, HOST)
    link(group, store, name=name)
    return group, store


# files


def test_exported_file_is_known_as_such_with_the_option(
    tree: Tree, ask: Ask, tmp_path: Path
) -> None:
    """share.delete and share.unmanage refuse a file that is exported."""
    file = tmp_path / f"volume-{ID}"
    file.write_bytes(bytes(4096))
    disk = {"path": str(file), "size": 4096, "kind": "file"}
    with pytest.raises(TargetFailed):  # a new directory has no attributes
        ask(True, "lio.apply", **wanted(HOST) | {"disk": disk})
    assert list(backstores.existing(ID))
