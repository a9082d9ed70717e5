# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A node that lives many short lives: each ends with SIGKILL at a chosen step.

A life is a forked process that assembles the node as the daemon does, on real
storage: the installed helper, the volume group, LIO. It reconciles and then
does what its parent says, one operation after the other, until one kills it.

An operation commits what it intends, changes the disks or the target, and
commits that this is done. To die before the first commit is to die before it.
The steps after that are: before a call that changes something; when it is sent
and not answered; before the next commit. A question changes nothing, so dying
before or after it is like dying at the steps beside it; and so it is with an
answered call and the step that follows it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.assemble import Assembly, assemble
from lunshare.agent.main import configure, sole_owner
from lunshare.agent.records import (
    Attachment,
    NewAttachment,
    NewVolume,
    Page,
    RequestContext,
    Volume,
)
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames
from tests.system.hosts import Host
from tests.system.waiting import wait_until

CTX = RequestContext("user", "project", True, "req-lives")
MANY = Page(None, 1000)
_PARENT_SECONDS = 300  # a life whose parent is gone ends by itself
_QUESTIONS = {"lio.check", "lio.observe", "lio.live", "vgs", "lvs"}


class Door(Helper):
    """The real door to root, and the end of the life at a chosen step."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._left = 0
        self._intended = False

    def watch(self, engine: sa.Engine) -> None:
        """See its commits."""
        sa.event.listen(engine, "commit", self._commits)

    def arm(self, at: int) -> None:
        """Die at step ``at``, counted from here; 0 is never."""
        self._left, self._intended = at, False

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        if _changes(verb, arguments):
            self._step()
        return super().call(verb, timeout=timeout, **arguments)

    def _ask(self, connection: socket.socket, message: Any, timeout: float) -> Any:
        if _changes(message["verb"], message["arguments"]):
            if self._left == 1:
                frames.send(connection, message)
            self._step()
        return super()._ask(connection, message, timeout)

    def _commits(self, _connection: object) -> None:
        if self._intended:
            self._step()
        self._intended = True

    def _step(self) -> None:
        if self._left == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left = max(0, self._left - 1)


def _changes(verb: str, arguments: Mapping[str, Any]) -> bool:
    asked = arguments["argv"][0] if verb == "run" else verb
    return asked not in _QUESTIONS


class Scene:
    """A shared volume with two hosts that stay and some more, and two plain ones."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.volumes = assembly.services.volumes
        self.attachments = assembly.services.attachments

    def volume(self, name: str) -> Volume:
        """The volume of that name, made if it is not there."""
        for each in self.volumes.list(CTX, MANY):
            if each.name == name:
                return each
        kind = "shared" if name == "shared" else None
        types = self.assembly.services.types
        if kind and not types.list(CTX):
            types.create(CTX, kind, extra_specs={"multiattach": "<is> True"})
        return self.volumes.create(CTX, NewVolume(1, name, volume_type=kind))

    def attachment(self, volume: str, host: str | None) -> Attachment:
        """The attachment of that host; None is the one without a host."""
        (found,) = self._of(self.volume(volume), host)
        return found

    def connect(self, row: Attachment, host: str) -> None:
        """Give an attachment a host, or another one."""
        self.attachments.connect(CTX, row.id, Host(host).connector)

    def detach(self, row: Attachment) -> None:
        """Take it away."""
        self.attachments.delete(CTX, row.id)

    def attach(self, volume: str, host: str | None, mode: str) -> Attachment:
        """A new attachment."""
        connector = Host(host).connector if host else None
        new = NewAttachment(self.volume(volume).id, mode=mode, connector=connector)
        return self.attachments.create(CTX, new)

    def restore(self) -> None:
        """Put in order what the last life has left of its operation."""
        for volume in self.volumes.list(CTX, MANY):
            for row in volume.attachments:
                known = (str(volume.name), row.attached_host) in _STAY
                if not known or row != self._of(volume, row.attached_host)[0]:
                    self.attachments.delete(CTX, row.id)
            if volume.name == "made":
                self.delete(volume)
        for (name, host), mode in _STAY.items():
            if not self._of(self.volume(name), host):
                made = self.attach(name, host, mode)
                if name == "shared" and host:
                    self.attachments.complete(CTX, made.id)
        self.volume("idle")

    def delete(self, volume: Volume) -> None:
        """Delete a volume and wait until it is gone."""
        self.volumes.delete(CTX, volume.id)
        wait_until(lambda: volume.id not in self._ids())

    def _of(self, volume: Volume, host: str | None) -> list[Attachment]:
        rows = self.volumes.get(CTX, volume.id).attachments
        return [row for row in rows if row.attached_host == host]

    def _ids(self) -> set[str]:
        return {volume.id for volume in self.volumes.list(CTX, MANY)}


#: Volume and host to mode: the attachments that a life begins with.
_STAY: dict[tuple[str, str | None], str] = {
    ("shared", "writer"): "rw",
    ("shared", "watcher"): "ro",
    ("shared", "reader"): "ro",
    ("shared", None): "rw",
    ("lonely", "only"): "rw",
}

OPERATIONS: dict[str, Callable[[Scene], object]] = {
    "create": lambda s: s.volumes.create(CTX, NewVolume(1, "made")),
    "attach": lambda s: s.attach("shared", "third", "ro"),
    "first attach": lambda s: s.attach("idle", "third", "rw"),
    "connect": lambda s: s.connect(s.attachment("shared", None), "third"),
    "other connector": lambda s: s.connect(s.attachment("shared", "reader"), "third"),
    "detach": lambda s: s.detach(s.attachment("shared", "reader")),
    "last detach": lambda s: s.detach(s.attachment("lonely", "only")),
    "delete": lambda s: s.delete(s.volume("idle")),
}


def live(argv: list[str], parent: socket.socket) -> int:
    """One life, that does what its parent says until a step of that kills it."""
    parent.settimeout(_PARENT_SECONDS)
    conf = configure(argv)
    with sole_owner(conf.state_path):
        door = Door(conf.helper.socket)
        assembly = assemble(conf, root=door)
        door.watch(assembly.database.engine)
        say(parent, assembly.reconcile.run().failed)
        scene = Scene(assembly)
        while asked := hear(parent):
            scene.restore()
            say(parent, [])
            hear(parent)
            door.arm(asked["step"])
            OPERATIONS[asked["operation"]](scene)
            door.arm(0)
            say(parent, [])
    return 0


def say(end: socket.socket, what: Any) -> None:
    """Send one thing to the other end."""
    end.sendall(json.dumps(what).encode() + b"\n")


def hear(end: socket.socket) -> Any:
    """The next thing that the other end says; None when there is no more."""
    data = b""
    while not data.endswith(b"\n"):
        more = end.recv(65536)
        if not more:
            return None
        data += more
    return json.loads(data)
