# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Operations at the limit of a quota, for test_kill: granted, refused, undone."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from lunshare.agent.model.errors import Exhausted, OverQuota
from lunshare.agent.model.records import NewSnapshot, NewVolume
from lunshare.drivers.errors import NoSpace
from tests.restart.killed_scene import Operation, Scene
from tests.restart.killing import let_end
from tests.stands.node import CTX, Node

#: A project that has nothing until a volume is given to it.
OTHER = replace(CTX, project_id="another")


def _allow(node: Node, more: int, *resources: str) -> None:
    """Let the project have so much more of these than it has."""
    used = {each.key: each.in_use for each in node.services.quotas.show(CTX, "project")}
    limits = {key: used[key] + more for key in resources}
    node.services.quotas.update(CTX, "project", limits)


def _create_the_last(node: Node, scene: Scene) -> None:
    _allow(node, 1, "volumes", "gigabytes")
    node.services.volumes.create(CTX, NewVolume(1))
    with contextlib.suppress(OverQuota):
        node.services.volumes.create(CTX, NewVolume(1))


def _create_fails(node: Node, scene: Scene) -> None:
    """What it was charged with is given back."""
    _allow(node, 1, "volumes", "gigabytes")
    error = NoSpace("fake", "because of the test")
    with (
        node.driver().failures.fail("create.half", error),
        contextlib.suppress(Exhausted),
    ):
        node.services.volumes.create(CTX, NewVolume(1))


def _extend(node: Node, scene: Scene) -> None:
    _allow(node, 1, "gigabytes")
    node.services.extender.extend(CTX, scene.idle.id, 2, True)
    with contextlib.suppress(OverQuota):
        node.services.extender.extend(CTX, scene.free.id, 2, True)


def _extend_fails(node: Node, scene: Scene) -> None:
    _allow(node, 1, "gigabytes")
    error = NoSpace("fake", "because of the test")
    with (
        node.driver().failures.fail("extend.before", error),
        contextlib.suppress(Exhausted),
    ):
        node.services.extender.extend(CTX, scene.idle.id, 2, True)


def _snapshot(node: Node, scene: Scene) -> None:
    _allow(node, 1, "snapshots", "gigabytes")
    node.services.snapshots.create(CTX, NewSnapshot(scene.free.id))
    with contextlib.suppress(OverQuota):
        node.services.snapshots.create(CTX, NewSnapshot(scene.free.id))


def _delete_and_create(node: Node, scene: Scene) -> None:
    """Space that a delete has freed."""
    _allow(node, 0, "volumes", "snapshots", "gigabytes")
    node.services.volumes.delete(CTX, scene.idle.id, cascade=True)
    let_end(node)
    with contextlib.suppress(OverQuota):
        node.services.volumes.create(CTX, NewVolume(1))


def _transfer(node: Node, scene: Scene) -> None:
    """With a snapshot; refused first, then taken."""
    transfers = node.services.transfers
    offer, key = transfers.create(CTX, scene.idle.id, None, False)
    node.services.quotas.update(CTX, "another", {"snapshots": 0})
    with contextlib.suppress(OverQuota):
        transfers.accept(OTHER, offer.id, key)
    node.services.quotas.update(CTX, "another", {"snapshots": 1})
    transfers.accept(OTHER, offer.id, key)


def _withdraw(node: Node, scene: Scene) -> None:
    offer, _ = node.services.transfers.create(CTX, scene.idle.id, None, True)
    node.services.transfers.delete(CTX, offer.id)


QUOTAS: dict[str, Operation] = {
    "create the last volume of a quota": _create_the_last,
    "create that fails at a quota": _create_fails,
    "extend to a quota": _extend,
    "extend that fails at a quota": _extend_fails,
    "snapshot to a quota": _snapshot,
    "delete and create at a quota": _delete_and_create,
    "transfer": _transfer,
    "withdrawn transfer": _withdraw,
}
