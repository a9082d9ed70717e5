# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The actions of a volume that attach and detach hosts, for test_kill."""

from __future__ import annotations

import contextlib

from lunshare.agent.model.errors import BackendFailed, Invalid
from lunshare.agent.model.records import Mode
from lunshare.drivers.errors import TargetFailed
from tests.restart.killed_scene import Operation, Scene
from tests.stands.node import CTX, Node, host_connector

HOST = host_connector("legacy")


def _reserve(node: Node, scene: Scene) -> None:
    node.services.legacy.reserve(CTX, scene.free.id)


def _unreserve(node: Node, scene: Scene) -> None:
    _reserve(node, scene)
    node.services.legacy.unreserve(CTX, scene.free.id)


def _initialize(node: Node, scene: Scene) -> None:
    _reserve(node, scene)
    node.services.legacy.initialize(CTX, scene.free.id, HOST)


def _give_up(node: Node, scene: Scene) -> None:
    """As Nova does when it cannot log in."""
    _initialize(node, scene)
    node.services.legacy.terminate(CTX, scene.free.id, HOST)
    node.services.legacy.unreserve(CTX, scene.free.id)


def _without_reservation(node: Node, scene: Scene) -> None:
    node.services.legacy.initialize(CTX, scene.free.id, HOST)
    node.services.legacy.terminate(CTX, scene.free.id, HOST)


def _fails(node: Node, scene: Scene, point: str) -> None:
    error = TargetFailed(scene.free.id, "because of the test")
    with node.target().failures.fail(point, error), contextlib.suppress(BackendFailed):
        node.services.legacy.initialize(CTX, scene.free.id, HOST)


def _fails_reserved(node: Node, scene: Scene) -> None:
    _reserve(node, scene)
    _fails(node, scene, "apply.opened")
    node.services.legacy.unreserve(CTX, scene.free.id)


def _attach(node: Node, scene: Scene, mode: Mode = Mode.RW) -> None:
    _initialize(node, scene)
    node.services.legacy.attach(
        CTX, scene.free.id, "/dev/vdb", instance=None, host="legacy", mode=mode
    )


def _attach_read_only(node: Node, scene: Scene) -> None:
    """The access is open rw, and os-attach names ro."""
    _attach(node, scene, Mode.RO)


def _roll(node: Node, scene: Scene) -> None:
    _attach(node, scene)
    node.services.legacy.begin_detaching(CTX, scene.free.id)
    node.services.legacy.roll_detaching(CTX, scene.free.id)


def _detach(node: Node, scene: Scene) -> None:
    _attach(node, scene)
    node.services.legacy.begin_detaching(CTX, scene.free.id)
    node.services.legacy.terminate(CTX, scene.free.id, HOST)
    node.services.legacy.detach(CTX, scene.free.id, None)


def _detach_alone(node: Node, scene: Scene) -> None:
    """A client that leaves os-terminate_connection out."""
    _attach(node, scene)
    node.services.legacy.detach(CTX, scene.free.id, None)


def _attach_again(node: Node, scene: Scene) -> None:
    """It was terminated, and is initialized before it is detached: refused."""
    _attach(node, scene)
    node.services.legacy.terminate(CTX, scene.free.id, HOST)
    with contextlib.suppress(Invalid):
        node.services.legacy.initialize(CTX, scene.free.id, HOST)


def _beside_others(node: Node, scene: Scene) -> None:
    """On a volume that two hosts have by attachments."""
    actions, volume_id = node.services.legacy, scene.volume.id
    actions.reserve(CTX, volume_id)
    actions.initialize(CTX, volume_id, HOST)
    actions.attach(
        CTX, volume_id, "/dev/vdb", instance=None, host="legacy", mode=Mode.RO
    )
    actions.terminate(CTX, volume_id, HOST)


# What only begins another one (os-reserve, os-initialize_connection, os-attach) is
# killed with that.
LEGACY: dict[str, Operation] = {
    "os-unreserve": _unreserve,
    "os-initialize_connection, given up": _give_up,
    "os-initialize_connection alone": _without_reservation,
    "os-initialize_connection that fails": lambda n, s: _fails(n, s, "apply.created"),
    "os-initialize_connection that fails, reserved": _fails_reserved,
    "os-attach in another mode": _attach_read_only,
    "os-roll_detaching": _roll,
    "os-detach": _detach,
    "os-detach alone": _detach_alone,
    "os-initialize_connection after a terminate": _attach_again,
    "legacy actions beside other hosts": _beside_others,
}
