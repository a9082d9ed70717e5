# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A request whose client has disconnected starts nothing.

It waited for the lock of its disk or target. Meanwhile its daemon gave up or was
killed, and a later request has another intent: if the old one ran last, a host that was
detached would have its access again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.protocol import frames, messages
from lunshare.helper.commands import Commands
from lunshare.helper.lio import (
    backstores,
    reservations,
    target_reads,
    target_tree,
    target_verbs,
)
from lunshare.helper.lio.backstores import Role
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.main import verbs
from lunshare.helper.mounts import KERNEL, Mounts
from lunshare.helper.served import Served
from lunshare.helper.server import Server
from tests.conformance.directory_shares import Directories
from tests.stands.waiting import until
from tests.unit.configfs_tree import OF_GROUPS
from tests.unit.helper_thread import filters_of, write_filters

PREFIX = "iqn.2026-11.io.test:"
ID = str(uuid.uuid4())
HOST, OTHER = (f"iqn.1994-05.com.example:{name}" for name in ("host", "other"))
PROGRAM = """#!/bin/sh
echo "begin ${{0##*/}}" >>{log}
while [ ! -e {gate} ]; do sleep 0.01; done
echo "end ${{0##*/}}" >>{log}
"""


class Helper:
    """A helper's server, and what its connections do."""

    def __init__(
        self, path: Path, served: Served, commands: Commands, mounts: Mounts
    ) -> None:
        self._path, listener = path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        table = verbs(served, commands, mounts)
        self.server = Server(listener, table, {os.getuid()})
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    @property
    def busy(self) -> int:
        return len(self.server._connections._busy)

    @property
    def connections(self) -> int:
        return len(self.server._connections._idle) + self.busy

    def send(self, verb: str, timeout: float = 20, **arguments: Any) -> socket.socket:
        """Send a request; return its connection when the helper works on it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = self.busy
        connection.connect(str(self._path))
        frames.send(connection, messages.request(verb, timeout, arguments))
        until(lambda: self.busy == before + 1)
        return connection

    def end(self) -> None:
        until(lambda: not self.busy)
        self.server.close()
        self._thread.join(10)


@contextlib.contextmanager
def helper(tmp_path: Path, *programs: str, mounts: Mounts = KERNEL) -> Iterator[Helper]:
    rules = write_filters(tmp_path, filters_of(*programs))
    base = str(tmp_path / "mnt")
    served = Served(
        PREFIX, base=base, shares=("nas:/srv",), directories=(str(tmp_path),)
    )
    commands = Commands(str(rules), (str(tmp_path / "bin"), "/usr/bin", "/bin"), served)
    made = Helper(tmp_path / "helper.sock", served, commands, mounts)
    try:
        yield made
    finally:
        made.end()


# a target: a directory with the files of configfs that these requests read


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A complete target; the ACL of OTHER answers when the test writes to it."""
    root = tmp_path / "configfs"
    for module in (target_tree, backstores):
        monkeypatch.setattr(module, "CORE", str(root / "core"))
    for module in (target_tree, target_verbs, target_reads):
        monkeypatch.setattr(module, "ISCSI", str(root / "iscsi"))
    monkeypatch.setattr(reservations, "ROOT", str(root))
    made = Target(PREFIX, ID)
    disk = tmp_path / f"volume-{ID}"
    disk.write_bytes(bytes(4096))
    store = root / "core" / "fileio_1" / "disk"
    store.mkdir(parents=True)
    (store / "alias").write_text(backstores.disk_identity(disk.stat()))
    (root / "dbroot").write_text(str(tmp_path))
    for each in (made.acl(OTHER), os.path.dirname(made.backstore_link(Role.WRITERS))):
        os.makedirs(each)
    os.symlink(store, made.backstore_link(Role.WRITERS))
    Path(made.group, "enable").write_text("1")
    for name in OF_GROUPS:
        Path(made.group, name).parent.mkdir(exist_ok=True)
        Path(made.group, name).write_text("0")
    os.mkfifo(f"{made.acl(OTHER)}/info")
    return made


def end_hang(info: Path, text: str = "No active iSCSI Session") -> None:
    """Answer whoever reads the pipe now; the next one reads a file."""
    with info.open("w") as pipe:
        info.unlink()
        info.write_text(text)
        pipe.write(text)


def wanted(tmp_path: Path, *hosts: str, only: str) -> dict[str, Any]:
    fields = {"mode": "rw", "attachment_id": "a", "auth": None}
    return {
        "volume_id": ID,
        "disk": {"path": f"{tmp_path}/volume-{ID}", "size": 4096, "kind": "file"},
        "connectors": [{"initiator": each, **fields} for each in hosts],
        "portals": [],
        "only": [only],
        "reservations": False,
    }


@pytest.mark.parametrize("alive", [True, False])
def test_access_is_not_opened_for_a_client_that_is_gone(
    tmp_path: Path, target: Target, alive: bool
) -> None:
    """An attach waits behind a detach that hangs, and its daemon is killed."""
    with helper(tmp_path) as root:
        detach = root.send("lio.apply", **wanted(tmp_path, only=OTHER))
        attach = root.send("lio.apply", **wanted(tmp_path, HOST, only=HOST))
        if not alive:
            attach.close()
        end_hang(Path(target.acl(OTHER), "info"))
        until(lambda: not root.busy)
        detach.close()
        attach.close()
    # In a plain directory the ACL of a live client gets no further than this.
    assert os.path.exists(target.acl(HOST)) is alive


@pytest.mark.parametrize("alive", [True, False])
def test_target_is_not_removed_for_a_client_that_is_gone(
    tmp_path: Path, target: Target, alive: bool
) -> None:
    with helper(tmp_path) as root:
        detach = root.send("lio.apply", **wanted(tmp_path, only=OTHER))
        remove = root.send("lio.remove", volume_id=ID)
        if not alive:
            remove.close()
        end_hang(Path(target.acl(OTHER), "info"))
        until(lambda: not root.busy)
        detach.close()
        remove.close()
    enabled = Path(target.group, "enable").read_text() == "1"
    assert enabled is not alive


# commands


@pytest.mark.parametrize("alive", [True, False])
def test_no_command_changes_a_group_for_a_client_that_is_gone(
    tmp_path: Path, alive: bool
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    (tmp_path / "bin").mkdir()
    for name in ("lvextend", "lvremove"):
        (tmp_path / "bin" / name).write_text(PROGRAM.format(log=log, gate=gate))
        (tmp_path / "bin" / name).chmod(0o755)
    disk = f"vg/volume-{ID}"
    with helper(tmp_path, "lvextend", "lvremove") as root:
        extend = root.send("run", argv=["lvextend", disk])
        until(log.exists)
        remove = root.send("run", argv=["lvremove", disk])
        if not alive:
            remove.close()
        gate.touch()
        until(lambda: not root.busy)
        extend.close()
        remove.close()
    done = log.read_text().split()[1::2]
    assert done == ["lvextend"] * 2 + ["lvremove"] * (2 if alive else 0)


@pytest.mark.parametrize("alive", [True, False])
def test_plain_command_does_not_start_for_a_client_that_is_gone(
    tmp_path: Path, alive: bool
) -> None:
    """A helper that was stopped for a while reads the request when it continues."""
    with helper(tmp_path, "touch") as root:
        client, ours = socket.socketpair()
        argv = ["touch", str(tmp_path / "x")]
        frames.send(client, messages.request("run", 20, {"argv": argv}))
        if not alive:
            client.close()
        root.server._admit(ours)
        if alive:
            assert "value" in frames.receive(client)
            client.close()
        until(lambda: not root.connections)
    assert (tmp_path / "x").exists() is alive


# files


@pytest.mark.parametrize("alive", [True, False])
def test_file_is_not_renamed_for_a_client_that_is_gone(
    tmp_path: Path, alive: bool
) -> None:
    """Its unmanage waits behind a request that the share answers late."""
    point, answers = tmp_path / "mnt" / ("0" * 32), threading.Event()
    point.mkdir(parents=True)
    (point / f"volume-{ID}").touch()

    def late(_source: str) -> None:
        assert answers.wait(20)

    mounts = Directories(MIB)
    mounts.mounted[str(point)] = "nas:/srv"
    mounts.server = late
    given: dict[str, Any] = {"point": str(point), "name": f"volume-{ID}"}
    with helper(tmp_path, mounts=mounts) as root:
        find = root.send("share.find", **given)
        unmanage = root.send("share.unmanage", **given)
        if not alive:
            unmanage.close()
        answers.set()
        until(lambda: not root.busy)
        find.close()
        unmanage.close()
    wanted = f"unmanaged-volume-{ID}" if alive else f"volume-{ID}"
    assert [each.name for each in point.iterdir()] == [wanted]
