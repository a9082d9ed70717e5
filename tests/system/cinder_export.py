# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An export as Cinder's LVM driver creates it, with rtslib, in the same order."""

from __future__ import annotations

import contextlib
import re

from rtslib_fb import (
    LUN,
    TPG,
    BlockStorageObject,
    FabricModule,
    MappedLUN,
    NetworkPortal,
    NodeACL,
    RTSRoot,
    Target,
)

from lunshare.drivers.values import Auth
from lunshare.helper.lio.target_verbs import TargetVerbs
from tests.system.lio_node import CONFIGFS, GROUP, PORT, PREFIX, Node, initiator

AUTH = Auth("shared-user", "shared-secret")
_SESSION = re.compile(r"LIO Session ID: (\d+)")


def taking(group: str = GROUP) -> TargetVerbs:
    """The helper's verbs, which take over the targets of a volume group."""
    return TargetVerbs(PREFIX, lambda name: name == group)


def export(node: Node, *hosts: str) -> TPG:
    """Export the node's disk to hosts, all read-write; return the portal group."""
    _remove_empty_hbas()
    RTSRoot().invalidate_caches()
    store = BlockStorageObject(name=node.iqn, dev=node.disk.path)
    group = TPG(Target(FabricModule("iscsi"), node.iqn, "create"), mode="create")
    group.set_attribute("authentication", "1")
    LUN(group, storage_object=store)
    group.enable = 1
    NetworkPortal(group, "127.0.0.1", PORT, mode="any")
    for host in hosts:
        acl = NodeACL(group, initiator(host), mode="create")
        acl.chap_userid, acl.chap_password = AUTH.username, AUTH.password
        MappedLUN(acl, 0, tpg_lun=0)
    return group


def _remove_empty_hbas() -> None:
    """As docs/fleet.md says for the way back: a kill may have left one, and rtslib
    then takes its number again and fails. The kernel refuses those in use."""
    for hba in (CONFIGFS / "core").glob("iblock_*"):
        with contextlib.suppress(OSError):
            hba.rmdir()


def remove(node: Node) -> None:
    """Remove it, as Cinder's LVM driver does."""
    root = RTSRoot()
    root.invalidate_caches()
    for found in [*root.targets, *root.storage_objects]:
        if node.iqn in {getattr(found, "wwn", ""), getattr(found, "name", "")}:
            found.delete()


def commands(node: Node) -> int:
    """How many commands the target has passed to its disk."""
    (store,) = (CONFIGFS / "core").glob(f"iblock_*/{node.iqn}")
    return int((store / "statistics/scsi_lu/num_cmds").read_text())


def session(node: Node, host: str) -> str:
    """The number of a host's live session; empty without one."""
    found = _SESSION.search((node.acl(host) / "info").read_text())
    return found[1] if found else ""
