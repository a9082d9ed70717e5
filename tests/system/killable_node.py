# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A node in a process that is killed with SIGKILL at a chosen step.

The process is forked and assembles the node as the daemon does, on real storage:
the installed helper, the volume group, LIO. It reconciles and then does the
operations that its parent sends, one after the other, until it is killed in one.

An operation commits its intent, changes the disks or the target, and commits that
it is done. A kill before the first commit is a kill before the operation. The
steps after that are: before a call that changes something; when the call is sent
and not answered; before the next commit. A call that only reads is not a step: a
kill before or after it has the same effect as a kill at the next step. The same
holds for an answered call and the step that follows it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa

from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.main import configure
from lunshare.agent.model.records import (
    Attachment,
    Mode,
    NewAttachment,
    NewVolume,
    Page,
    RequestContext,
    Volume,
)
from lunshare.agent.service.attachments import connectors
from lunshare.agent.state_path import sole_owner
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames
from tests.stands.waiting import until
from tests.system.hosts import Host

CTX = RequestContext("user", "project", True, "req-killed", ("admin",))
MANY = Page(None, 1000)
_PARENT_SECONDS = 300  # a process without its parent ends by itself
_READS = {
    "lio.check",
    "lio.observe",
    "lio.live",
    "lio.host",
    "vgs",
    "lvs",
    "lvm.commit",
}
_READS |= {"lvm.pool", "lvm.mapped"}


class KillableHelper(Helper):
    """The client of the root helper, which kills its process at a chosen step."""

    #: What its process gets at the step.
    ends_with: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._steps_left = 0
        self._intended = False

    def watch(self, engine: sa.Engine) -> None:
        """Count its commits as steps."""
        sa.event.listen(engine, "commit", self._commits)

    def arm(self, at: int) -> None:
        """Kill the process at step ``at``, counted from now; 0 is never."""
        self._steps_left, self._intended = at, False

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        if _changes(verb, arguments):
            self._step()
        return super().call(verb, timeout=timeout, **arguments)

    def _ask(self, connection: socket.socket, message: Any, timeout: float) -> Any:
        if _changes(message["call"], message["arguments"]):
            if self._steps_left == 1:
                frames.send(connection, message)
            self._step()
        return super()._ask(connection, message, timeout)

    def _commits(self, _connection: object) -> None:
        if self._intended:
            self._step()
        self._intended = True

    def _step(self) -> None:
        if self._steps_left == 1:
            os.kill(os.getpid(), self.ends_with)
        self._steps_left = max(0, self._steps_left - 1)


def _changes(verb: str, arguments: Mapping[str, Any]) -> bool:
    command = arguments["argv"][0] if verb == "run" else verb
    return command not in _READS


class Scene:
    """A shared volume with two permanent hosts and more, and two plain volumes."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.volumes = assembly.volumes
        self.attachments = assembly.attachments

    def volume(self, name: str) -> Volume:
        """The volume of that name, created if it is missing."""
        for each in self.volumes.list(CTX, MANY):
            if each.name == name:
                return each
        kind = "shared" if name == "shared" else None
        types = self.assembly.types
        if kind and not types.list(CTX):
            types.create(CTX, kind, extra_specs={"multiattach": "<is> True"})
        return self.volumes.create(CTX, NewVolume(1, name, volume_type=kind))

    def attachment(self, volume: str, host: str | None) -> Attachment:
        """The attachment of that host; None: the one without a host."""
        (found,) = self._of(self.volume(volume), host)
        return found

    def connect(self, row: Attachment, host: str) -> None:
        """Set the host of an attachment."""
        connector = connectors.parse(Host(host).connector)
        self.attachments.connect(CTX, row.id, connector)

    def detach(self, row: Attachment) -> None:
        """Delete an attachment."""
        self.attachments.delete(CTX, row.id)

    def attach(self, volume: str, host: str | None, mode: str) -> Attachment:
        """A new attachment."""
        connector = connectors.parse(Host(host).connector) if host else None
        volume_id = self.volume(volume).id
        new = NewAttachment(volume_id, mode=Mode(mode), connector=connector)
        return self.attachments.create(CTX, new)

    def restore(self) -> None:
        """Restore the rows that the last operation has changed."""
        for volume in self.volumes.list(CTX, MANY):
            for row in volume.attachments:
                known = (str(volume.name), row.attached_host) in _STAY
                if not known or row != self._of(volume, row.attached_host)[0]:
                    self.attachments.delete(CTX, row.id)
            if volume.name == "created":
                self.delete(volume)
        for (name, host), mode in _STAY.items():
            if not self._of(self.volume(name), host):
                created = self.attach(name, host, mode)
                if name == "shared" and host:
                    self.attachments.complete(CTX, created.id)
        self.volume("idle")

    def delete(self, volume: Volume) -> None:
        """Delete a volume and wait until it is gone."""
        self.volumes.delete(CTX, volume.id)
        until(lambda: volume.id not in self._ids())

    def _of(self, volume: Volume, host: str | None) -> list[Attachment]:
        rows = self.volumes.get(CTX, volume.id).attachments
        return [row for row in rows if row.attached_host == host]

    def _ids(self) -> set[str]:
        return {volume.id for volume in self.volumes.list(CTX, MANY)}


#: Volume and host to mode: the attachments before each operation.
_STAY: dict[tuple[str, str | None], str] = {
    ("shared", "writer"): "rw",
    ("shared", "watcher"): "ro",
    ("shared", "reader"): "ro",
    ("shared", None): "rw",
    ("lonely", "only"): "rw",
}

OPERATIONS: dict[str, Callable[[Scene], object]] = {
    "create": lambda s: s.volumes.create(CTX, NewVolume(1, "created")),
    "attach": lambda s: s.attach("shared", "third", "ro"),
    "first attach": lambda s: s.attach("idle", "third", "rw"),
    "connect": lambda s: s.connect(s.attachment("shared", None), "third"),
    "other connector": lambda s: s.connect(s.attachment("shared", "reader"), "third"),
    "detach": lambda s: s.detach(s.attachment("shared", "reader")),
    "last detach": lambda s: s.detach(s.attachment("lonely", "only")),
    "delete": lambda s: s.delete(s.volume("idle")),
}


_Scene = TypeVar("_Scene", bound=Scene)


def main(argv: list[str], parent: socket.socket) -> int:
    """Do the operations that the parent sends, until a step kills the process."""
    return live(argv, parent, Scene, OPERATIONS)


def live(
    argv: list[str],
    parent: socket.socket,
    kind: Callable[[Assembly], _Scene],
    operations: Mapping[str, Callable[[_Scene], object]],
) -> int:
    """Do the same with the operations of a scene."""
    parent.settimeout(_PARENT_SECONDS)
    conf = configure(argv)
    with sole_owner(conf.state_path):
        helper = KillableHelper(conf.helper.socket)
        assembly = assemble(conf, root=helper)
        helper.watch(assembly.database.engine)
        send(parent, assembly.reconcile.run().failed)
        scene = kind(assembly)
        while order := receive(parent):
            scene.restore()
            send(parent, [])
            receive(parent)
            helper.arm(order["step"])
            operations[order["operation"]](scene)
            helper.arm(0)
            send(parent, [])
    return 0


def send(end: socket.socket, what: Any) -> None:
    """Send one JSON value to the other end."""
    end.sendall(json.dumps(what).encode() + b"\n")


def receive(end: socket.socket) -> Any:
    """The next JSON value from the other end; None at the end."""
    data = b""
    while not data.endswith(b"\n"):
        more = end.recv(65536)
        if not more:
            return None
        data += more
    return json.loads(data)
