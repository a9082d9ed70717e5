# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host attaches a volume by itself, uses it, and detaches it: nothing is left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.brick import commands, pins
from tests.clients import strategies
from tests.clients.command import Command
from tests.clients.pins import environ
from tests.clients.process import Process
from tests.clients.record import Record
from tests.system.api import ADDRESS, Api
from tests.system.kernel import Live

pytestmark = pytest.mark.system

_BLOCK = 4096
_TEXT = b"from the host itself".ljust(_BLOCK, b".")
_NO_RECORDS = 21  # iscsiadm(8): no records, targets, sessions or portals


@pytest.fixture(params=commands.MICROVERSIONS)
def cinder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Command]:
    """The command cinder with the extension, with this microversion."""
    known = {"address": ADDRESS, "user": "admin", "project": "default"}
    asked = strategies.TABLE["noauth"].cinder.items()
    words = {name: value.format(**known) for name, value in asked}
    process = Process(
        pins.GUEST,
        "brick.py",
        environ=environ(
            **words, **commands.ENVIRON, OS_VOLUME_API_VERSION=request.param
        ),
        log=tmp_path / "cinder.log",
    )
    with closing(process):
        yield Command("cinder", process, "noauth", Record())


@pytest.fixture
def volume() -> Iterator[str]:
    """A new volume, which is deleted after the test."""
    api = Api()
    created = api.volume(shared=False)
    yield created
    api.delete_volume(created)


def run(cinder: Command, command: str, *words: str) -> str:
    """Run a command, which must end as docs/clients.md says."""
    if commands.COMMANDS[command] == commands.WORKS:
        return cinder(command, *words)
    cinder.fails(commands.NO_TABLE, command, *words)
    return ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nic", [[], ["--nic", "lo"]], ids=["no nic", "lo"])
def test_a_host_attaches_writes_and_detaches(
    cinder: Command, volume: str, nic: list[str]
) -> None:
    api = Api()
    run(cinder, "get-connector", *nic)
    run(cinder, "local-attach", volume, *nic)
    assert api.status(volume) == "in-use"
    (attached,) = api.attachments(volume)
    assert attached["status"] == "attached"
    assert [*Live(volume).modes().values()] == ["rw"]
    path = Path(run(cinder, "get-volume-paths", volume).strip())
    assert str(path) in run(cinder, "get-all-volume-paths")
    write(path)
    assert stored(volume) == _TEXT

    run(cinder, "local-detach", volume)
    assert api.attachments(volume) == []
    assert api.status(volume) == "available"
    assert Live(volume).gone
    assert not path.exists()
    for kind in ("session", "node"):
        assert iscsiadm(kind) == _NO_RECORDS
    assert stored(volume) == _TEXT


def write(path: Path) -> None:
    """Write a block through the host's device, as far as the target."""
    device = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        assert os.pwrite(device, _TEXT, 0) == _BLOCK
    finally:
        os.close(device)


def stored(volume: str) -> bytes:
    """The first block of the volume's disk, read past every cache."""
    disk = f"if=/dev/lunshare/volume-{volume}"
    words = ["dd", disk, f"bs={_BLOCK}", "count=1", "iflag=direct", "status=none"]
    return subprocess.run(words, check=True, capture_output=True).stdout


def iscsiadm(kind: str) -> int:
    """The exit code of a list of the initiator's sessions or records."""
    done = subprocess.run(["iscsiadm", "-m", kind], check=False, capture_output=True)
    return done.returncode
