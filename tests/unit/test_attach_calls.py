# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which system calls the helper makes for a new host of a live target: few of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lunshare.helper.lio import target_requests
from lunshare.helper.lio.target_verbs import TargetVerbs
from tests.unit.configfs_tree import PREFIX, Tree, link

ID = "11111111-2222-4333-8444-555555555555"
HOST = "iqn.1994-05.com.example:host1"
WANTED = {
    "volume_id": ID,
    "disk": {"path": f"/dev/group/volume-{ID}", "size": 8, "kind": "block"},
    "connectors": [
        {
            "initiator": HOST,
            "mode": "rw",
            "attachment_id": "one",
            "auth": {"username": "user", "password": "secret"},
        }
    ],
    "portals": [{"address": "192.0.2.1", "port": 3260}],
    "only": [HOST],
    "reservations": False,
}
# The target is ours and has the disk, the disk is there, hosts may log in; there is no
# ACL, so none that the kernel keeps; then the writes in the order that fails closed,
# with a LUN for this host, and the bit is read back.
EXPECTED = [
    "open alias",
    "stat volume",
    "open enable",
    "access acl",
    "open tag",
    "mkdir acl",
    "open tag",
    "open dataout_timeout",
    "readlink volume",
    "mkdir own LUN",
    "symlink volume",
    "mkdir lun_0",
    "symlink lun",
    "open password",
    "open userid",
    "open write_protect",
]
_ATTRIBUTES = (
    *("auth/userid", "auth/password", "tag", "info"),
    *("attrib/authentication", "attrib/dataout_timeout"),
)


def _short(path: object) -> str:
    name = os.path.basename(str(path))
    if re.fullmatch(r"lun_\d\d+", name):
        return "own LUN"
    return {HOST: "acl", f"volume-{ID}": "volume"}.get(name, name)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path / "config", monkeypatch)
    name = f"volume-{ID}"
    store = made.backstore("iblock_1048577", name, "253:7", "group")
    (store / "alias").write_text("253:7")
    group = made.target(ID)
    (group / "acls").mkdir()
    link(group, store, name=name)
    return made


def test_an_attach_makes_few_system_calls(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real_mkdir, real_open, exists = os.mkdir, os.open, os.access

    def noted(call: str, real: Callable[..., Any], at: int = 0) -> None:
        def wrapper(*given: Any, **named: Any) -> Any:
            made.append(f"{call} {_short(given[at])}")
            return real(*given, **named)

        monkeypatch.setattr(os, call, wrapper)

    def mkdir(path: str, *more: Any) -> None:
        """The kernel creates the attributes of an object."""
        real_mkdir(path, *more)
        names = ["write_protect"] if path.endswith("lun_0") else _ATTRIBUTES
        for name in names:
            above = os.path.dirname(f"{path}/{name}")
            if not exists(above, os.F_OK):
                real_mkdir(above)
            os.close(real_open(f"{path}/{name}", os.O_CREAT))

    wanted = target_requests.apply(WANTED)
    verbs = TargetVerbs(PREFIX)
    for call in ("open", "stat", "lstat", "access", "readlink", "listdir"):
        noted(call, getattr(os, call))
    noted("mkdir", mkdir)
    noted("symlink", os.symlink, at=1)
    changes = verbs.apply(wanted, 5)
    assert f"ACL of {HOST} created" in changes
    assert made == EXPECTED


def test_a_detach_removes_the_lun_of_a_host_that_writes(tree: Tree) -> None:
    """Also in the one step for all hosts without a session."""
    tree.create_attributes("group")
    (pr,) = tree.root.glob("core/*/*/attrib/emulate_pr")
    pr.write_text("0")
    verbs = TargetVerbs(PREFIX)
    luns = tree.root / "iscsi" / f"{PREFIX}volume-{ID}" / "tpgt_1/lun"
    assert f"ACL of {HOST} created" in verbs.apply(target_requests.apply(WANTED), 5)
    assert len(os.listdir(luns)) == 2
    detached = target_requests.apply({**WANTED, "connectors": []})
    assert verbs.apply(detached, 5) == [f"{HOST} closed"]
    assert os.listdir(luns) == ["lun_0"]
