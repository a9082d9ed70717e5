# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A copy of the database while the daemon works, and the way back from one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from lunshare.agent import backup_command as command
from lunshare.agent import state_path
from lunshare.agent.db.sqlite import backup
from lunshare.agent.model.errors import DatabaseFailed, StartupError
from lunshare.agent.model.operator_records import RecoverRequest
from lunshare.agent.model.states import VolumeStatus
from tests.stands.node import CTX, Node
from tests.stands.waiting import until


def run(node: Node, to: Path, *more: str) -> int:
    """The command, on this node's database."""
    config = node.path / "backup.conf"
    config.write_text(
        f"[database]\nconnection = sqlite:///{node.path / 'lunshare.sqlite'}\n"
    )
    return command.main(["--config-file", str(config), "--to", str(to), *more])


def test_a_copy_under_load_is_consistent(tmp_path: Path) -> None:
    node = Node(tmp_path, backends="backup").start()
    stop, made = threading.Event(), []

    def create() -> None:
        while not stop.is_set():
            made.append(node.plain_volume().id)

    load = threading.Thread(target=create)
    load.start()
    try:
        while len(made) < 3:
            assert load.is_alive()
        before = set(made)
        copy = backup.copy(tmp_path / "lunshare.sqlite", tmp_path)
    finally:
        stop.set()
        load.join()
        node.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(copy) as opened:
        held = {row[0] for row in opened.execute("SELECT id FROM volumes")}
    opened.close()
    assert before <= held <= set(made)
    assert list(tmp_path.glob("*.part")) == []


def test_the_oldest_copies_are_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path, backends="backup")
    node.close()
    to = tmp_path / "copies"
    to.mkdir()
    for _ in range(3):
        assert run(node, to, "--keep", "2") == 0
    made = capsys.readouterr().out.split()
    assert sorted(map(str, to.iterdir())) == made[1:]


def test_the_new_copy_is_kept_after_the_clock_was_set_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path, backends="backup")
    node.close()
    to = tmp_path / "copies"
    to.mkdir()
    for year in (2097, 2098):
        (to / f"lunshare-{year}0101T000000.000000Z.sqlite").touch()
    assert run(node, to, "--keep", "2") == 0
    made = Path(capsys.readouterr().out.strip())
    assert {made.name[9:13], "2098"} == {each.name[9:13] for each in to.iterdir()}


def test_a_killed_copy_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """Not that of a command that still runs."""
    node = Node(tmp_path, backends="backup")
    node.close()
    to = tmp_path / "copies"
    to.mkdir()
    left = [to / f"lunshare-20260101T000000.000000Z.part{end}" for end in ("", "-wal")]
    for each in left:
        each.write_bytes(b"incomplete")
    opened = os.open(to, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    second = threading.Thread(target=run, args=(node, to))
    second.start()
    try:
        until(lambda: waits_for_lock(to))
        assert all(each.exists() for each in left)
    finally:
        os.close(opened)
    second.join(20)
    (copied,) = to.iterdir()
    assert copied.suffix == ".sqlite"


def waits_for_lock(path: Path) -> bool:
    """Whether somebody waits for a flock of it (proc_locks(5))."""
    inode = f":{path.stat().st_ino} "
    return any(
        "->" in line and inode in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


@pytest.mark.parametrize("missing", ["directory", "database"])
def test_a_failed_copy_is_one_sentence_and_leaves_nothing(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path, backends="backup")
    node.close()
    to = tmp_path / "copies"
    if missing == "database":
        to.mkdir()
        (tmp_path / "lunshare.sqlite").unlink()
    assert run(node, to) == 1
    said = capsys.readouterr().err
    assert said.startswith("lunshare-backup: the backup of ")
    assert said.count("\n") == 1
    assert not to.exists() or list(to.iterdir()) == []
    assert missing != "database" or not (tmp_path / "lunshare.sqlite").exists()


def test_a_damaged_database_is_not_a_backup(tmp_path: Path) -> None:
    node = Node(tmp_path, backends="backup").start()
    node.plain_volume()
    node.close()
    file = tmp_path / "lunshare.sqlite"
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    with pytest.raises(DatabaseFailed, match=r"the backup of .* failed"):
        backup.copy(file, tmp_path)
    assert list(tmp_path.glob("lunshare-*")) == []


def test_disks_newer_than_a_restored_database_are_recovered(tmp_path: Path) -> None:
    """As docs/operations.md has it: stop, restore, start, recover."""
    node = Node(tmp_path, backends="newer").start()
    old = node.plain_volume()
    copy = backup.copy(tmp_path / "lunshare.sqlite", tmp_path)
    new = node.plain_volume(2)
    node.driver("newer").storage.write(new.id, 0, b"written after the copy")
    node.close()
    for each in tmp_path.glob("lunshare.sqlite*"):
        each.unlink()
    copy.rename(tmp_path / "lunshare.sqlite")

    node = Node(tmp_path, backends="newer").start()
    try:
        assert [o.id for o in node.services.orphans.list(CTX)] == [new.id]
        back = node.services.orphans.recover(CTX, RecoverRequest(new.id, "back"))
        assert (back.id, back.size) == (new.id, 2)
        assert back.own_status is VolumeStatus.AVAILABLE
        assert node.driver("newer").storage.read(new.id, 0, 7) == b"written"
        assert node.services.volumes.get(CTX, old.id).size == old.size
        assert node.services.orphans.list(CTX) == []
    finally:
        node.close()


def test_root_does_not_open_a_database_of_another_user(tmp_path: Path, capsys) -> None:
    """A journal created by the directory's owner let root's sqlite3 delete a file."""
    (tmp_path / "state").mkdir()
    node = Node(tmp_path / "state", backends="backup").start()
    node.close()
    copies = tmp_path / "copies"
    copies.mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "state", 12345, -1)
        assert run(node, copies) == 1
        assert "run it as that user" in capsys.readouterr().err
        assert not list(copies.iterdir())
        os.chown(tmp_path / "state", 0, -1)
    assert run(node, copies) == 0


def test_root_writes_nothing_into_a_state_path_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that root starts by hand emptied the file to which a link led."""
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.write_text("root's own")
    (state / ".writable").symlink_to(other)
    if os.geteuid() == 0:
        os.chown(state, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        pytest.raises(StartupError, match="belongs to uid"),
        state_path.sole_owner(str(state)),
    ):
        pass
    assert other.read_text() == "root's own"
