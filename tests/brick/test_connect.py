# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare connect`` and ``disconnect``: the kernel's initiator, by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.stands.waiting import together, until
from tests.system.api import Api
from tests.system.hosts import block
from tests.system.kernel import Live
from tests.system.units import DAEMON, run, systemctl
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

LUNSHARE = Path(sys.executable).with_name("lunshare")
HOST = 6  # the exit code of what this host cannot do
_NO_RECORDS = 21  # iscsiadm(8): no records, targets, sessions or portals


def lunshare(*words: str, **environ: str) -> tuple[int, str, str]:
    """Run a command: its exit code, standard output and standard error."""
    result = subprocess.run(
        [LUNSHARE, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environ},
    )
    return result.returncode, result.stdout, result.stderr


@contextmanager
def connected(volume: str, *words: str) -> Iterator[dict[str, Any]]:
    """This host has the volume."""
    code, text, error = lunshare("connect", volume, "--json", *words)
    assert code == 0, error
    yield json.loads(text)
    code, _, error = lunshare("disconnect", volume)
    assert code == 0, error


def sessions() -> int:
    """The exit code of a list of this host's sessions."""
    listing = ["iscsiadm", "-m", "session"]
    return subprocess.run(listing, check=False, capture_output=True).returncode


def write(path: str, text: str) -> None:
    """Write a block as far as the target."""
    device = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        assert os.pwrite(device, block(text), 0) == len(block(text))
    finally:
        os.close(device)


def test_a_host_connects_read_only_beside_a_writer_and_disconnects(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    volume, writer = borrow(), host("writer")
    session = writer.login(api.attach(volume, writer)["connection_info"])
    session.write(0, block("from the writer"))
    with connected(volume, "--mode", "ro") as mine:
        assert mine["mode"] == "ro"
        modes = Live(volume).modes()
        assert sorted(map(str, modes.values())) == ["ro", "rw"]
        assert Path(mine["path"]).read_bytes()[:15] == b"from the writer"
        with pytest.raises(OSError, match=r"not permitted|Read-only"):
            write(mine["path"], "not allowed")
        rows = {row["id"]: row for row in api.attachments(volume)}
        assert rows[mine["attachment_id"]]["status"] == "attached"
        session.write(0, block("beside it"))
    assert [*Live(volume).modes()] == [writer.initiator]
    assert mine["attachment_id"] not in {r["id"] for r in api.attachments(volume)}
    assert not Path(mine["path"]).exists()
    assert sessions() == _NO_RECORDS


def test_a_host_connects_for_writing_and_its_bytes_are_on_the_disk(
    api: Api, borrow: BorrowVolume
) -> None:
    volume = borrow()
    with connected(volume) as mine:
        assert mine["mode"] == "rw"
        write(mine["path"], "from this host")
    disk = Path(f"/dev/lunshare/volume-{volume}")
    assert disk.read_bytes()[:14] == b"from this host"
    assert api.status(volume) == "available"
    assert sessions() == _NO_RECORDS


def test_a_mounted_disk_is_not_disconnected(
    borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    with connected(volume) as mine:
        run("mkfs.ext4", "-q", mine["path"])
        run("mount", mine["path"], str(tmp_path))
        code, _, error = lunshare("disconnect", volume)
        assert (code, error) == (
            HOST,
            f"lunshare: {mine['path']} is mounted on {tmp_path}: unmount it first\n",
        )
        (tmp_path / "file").write_text("still there")
        run("umount", str(tmp_path))


def failing_login(directory: Path, commands: str) -> str:
    """A PATH with an iscsiadm whose login runs these commands, then fails."""
    program = directory / "iscsiadm"
    program.write_text(
        f"""#!/bin/sh
case "$*" in *--login*)
{commands}
exit 8  # iscsiadm(8): connection timed out
esac
exec {run("which", "iscsiadm").strip()} "$@"
"""
    )
    program.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def test_a_login_that_fails_leaves_no_attachment(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    path = failing_login(tmp_path, ":")
    code, text, error = lunshare("connect", volume, PATH=path)
    assert (code, text) == (HOST, "")
    assert error.startswith("lunshare: ")
    assert error.count("\n") == 1
    assert api.attachments(volume) == []
    until(lambda: Live(volume).gone)
    assert sessions() == _NO_RECORDS


def test_a_connect_that_is_ended_by_a_signal_leaves_no_attachment(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    started, may_end = tmp_path / "started", tmp_path / "may end"
    wait = f"touch '{started}'; while ! [ -e '{may_end}' ]; do sleep 0.1; done"
    path = failing_login(tmp_path, wait)
    environ = {**os.environ, "PATH": path}
    with subprocess.Popen([LUNSHARE, "connect", volume], env=environ) as process:
        until(started.exists)
        assert len(api.attachments(volume)) == 1
        process.terminate()
        may_end.touch()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert api.attachments(volume) == []
    until(lambda: Live(volume).gone)
    assert sessions() == _NO_RECORDS


def test_an_attachment_that_could_not_be_ended_is_told(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    path = failing_login(tmp_path, f"systemctl stop {DAEMON}")
    try:
        code, _, error = lunshare("connect", volume, PATH=path)
    finally:
        systemctl("start", DAEMON)
    assert code == HOST
    until(api.answers)
    (attachment,) = api.attachments(volume)
    words = ("disconnect", volume, "--attachment", attachment["id"])
    told, _ = error.splitlines()
    assert told.startswith(f"lunshare: attachment {attachment['id']} stays (no node")
    assert told.endswith(f": end it with lunshare {' '.join(words)}")
    code, _, error = lunshare(*words)
    assert code == 0, error
    assert api.attachments(volume) == []


def test_two_commands_at_once_leave_no_session(api: Api, borrow: BorrowVolume) -> None:
    """Each saw the other's attachment, and left the session to it."""
    volume = borrow()
    for code, _, error in together([lambda: lunshare("connect", volume)] * 2):
        assert code == 0, error
    ids = [row["id"] for row in api.attachments(volume)]
    assert len(ids) == 2
    ends = [partial(lunshare, "disconnect", volume, "--attachment", i) for i in ids]
    for code, _, error in together(ends):
        assert code == 0, error
    assert api.attachments(volume) == []
    assert sessions() == _NO_RECORDS


def test_a_disk_that_a_process_has_open_is_not_disconnected(
    borrow: BorrowVolume,
) -> None:
    """A virtual machine opens a disk without O_EXCL."""
    volume = borrow()
    with connected(volume) as mine:
        device = os.open(mine["path"], os.O_RDWR)
        code, _, error = lunshare("disconnect", volume)
        os.close(device)
        path = os.path.realpath(mine["path"])
        process = f"process {os.getpid()} ({psutil.Process().name()})"
        assert (code, error) == (
            HOST,
            f"lunshare: {path} is open in {process}: end that first\n",
        )


def test_a_volume_that_this_host_does_not_have_is_not_disconnected(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    volume = borrow()
    code, _, error = lunshare("disconnect", volume)
    assert (code, error) == (1, f"lunshare: volume {volume} has no attachment\n")
    other = api.attach(volume, host("writer"))["id"]
    code, _, error = lunshare("disconnect", volume)
    assert code == 1
    assert "is not logged in" in error
    assert other in error
    assert api.attachments(volume)[0]["id"] == other


def test_a_disk_that_is_swap_is_not_disconnected(borrow: BorrowVolume) -> None:
    volume = borrow()
    with connected(volume) as mine:
        path = os.path.realpath(mine["path"])
        run("mkswap", path)
        run("swapon", path)
        code, _, error = lunshare("disconnect", volume)
        assert (code, error) == (
            HOST,
            f"lunshare: {path} is in use, such as for swap: end that first\n",
        )
        run("swapoff", path)


def test_a_connected_host_does_not_end_the_attachment_of_another(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    volume = borrow()
    other = api.attach(volume, host("reader"), mode="ro")["id"]
    with connected(volume) as mine:
        code, _, error = lunshare("disconnect", volume, "--attachment", other)
        assert (code, error) == (
            1,
            f"lunshare: attachment {other} is another host's; this host has:"
            f" {mine['attachment_id']}\n",
        )
        assert Path(mine["path"]).exists()
        assert len(api.attachments(volume)) == 2
