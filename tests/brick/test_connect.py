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
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import block
from tests.system.kernel import Live
from tests.system.units import DAEMON, run, systemctl
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

LUNSHARE = Path(sys.executable).with_name("lunshare")
HOST = 6  # the exit code of what this host cannot do
_FAIL = "exit 8"  # iscsiadm(8): connection timed out
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
    try:
        yield json.loads(text)
    finally:
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


def login_after(directory: Path, commands: str) -> str:
    """A PATH with an iscsiadm that runs these commands of sh before a login."""
    program = directory / "iscsiadm"
    program.write_text(
        f"""#!/bin/sh
case "$*" in *--login*)
{commands}
esac
exec {run("which", "iscsiadm").strip()} "$@"
"""
    )
    program.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def waiting(started: Path, may_end: Path) -> str:
    """Commands of sh that create one file, and wait for the other."""
    return f"touch '{started}'; while ! [ -e '{may_end}' ]; do sleep 0.1; done"


def has_lock_open(pid: int) -> bool:
    """Whether a command waits for the other commands of this host."""
    files = psutil.Process(pid).open_files()
    return any(file.path.endswith("/lunshare-connect") for file in files)


def test_a_session_of_an_ended_attachment_is_not_used_again(
    api: Api, borrow: BorrowVolume
) -> None:
    """Its disk was given out as the new attachment's, and could not be read."""
    volume = borrow()
    code, text, error = lunshare("connect", volume, "--json")
    assert code == 0, error
    assert api.detach(json.loads(text)["attachment_id"])[0] == 200
    assert api.attachments(volume) == []
    code, text, error = lunshare("connect", volume)
    (target,) = {
        file.read_text().strip()
        for file in Path("/sys/class/iscsi_session").glob("session*/targetname")
    }
    run("iscsiadm", "-m", "node", "-T", target, "-u")
    assert (code, text) == (HOST, "")
    assert error.startswith(f"lunshare: this host has a session to {target} of an ")
    assert error.count("\n") == 1
    assert api.attachments(volume) == []
    with connected(volume) as mine:
        write(mine["path"], "from this host")


def test_a_login_that_fails_leaves_no_attachment(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    path = login_after(tmp_path, _FAIL)
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
    path = login_after(tmp_path, f"{waiting(started, may_end)}; {_FAIL}")
    environ = {**os.environ, "PATH": path}
    with subprocess.Popen([LUNSHARE, "connect", volume], env=environ) as process:
        until(started.exists)
        assert len(api.attachments(volume)) == 1
        process.terminate()
        may_end.touch()
        assert process.wait(300) == 128 + signal.SIGTERM
    assert api.attachments(volume) == []
    until(lambda: Live(volume).gone)
    assert sessions() == _NO_RECORDS


def test_an_attachment_that_could_not_be_ended_is_told(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    volume = borrow()
    path = login_after(tmp_path, f"systemctl stop {DAEMON}; {_FAIL}")
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


def test_a_command_waits_for_the_one_that_runs_on_this_host(
    api: Api, borrow: BorrowVolume, tmp_path: Path
) -> None:
    """It ended the attachment that the other was logging in to."""
    volume = borrow()
    started, may_end = tmp_path / "started", tmp_path / "may end"
    environ = {**os.environ, "PATH": login_after(tmp_path, waiting(started, may_end))}
    with subprocess.Popen([LUNSHARE, "connect", volume], env=environ) as first:
        until(started.exists)
        (attachment,) = api.attachments(volume)
        words = ("disconnect", volume, "--attachment", attachment["id"])
        with subprocess.Popen([LUNSHARE, *words]) as second:
            until(lambda: second.poll() is not None or has_lock_open(second.pid))
            may_end.touch()
            assert (first.wait(300), second.wait(300)) == (0, 0)
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
