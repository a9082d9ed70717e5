# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A disk is changed once at a time, and each change runs to its end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers import errors
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames
from lunshare.drivers.retry import retried_once
from lunshare.helper.commands import Commands
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.lvm import changes
from tests.stands.waiting import until
from tests.unit.helper_thread import filters_of, write_filters

UUID = "11111111-2222-4333-8444-555555555555"
OTHER = "11111111-2222-4333-8444-666666666666"
DISK = f"lunshare/volume-{UUID}"
# Each program logs its start and its end, and runs until the file GATE exists.
PROGRAM = """#!/bin/sh
echo "begin $0 $*" >>{log}
while [ ! -e {gate} ]; do sleep 0.01; done
{noise}
echo "end $0 $*" >>{log}
echo "said by $0"
"""
# LVM prints output while it works; the other programs do not.
NOISE = "echo half; echo way >&2"
PROGRAMS = ("lvs", "lvextend", "lvremove", "lvreduce")
WAIT = 60.0


class Direct:
    """The helper's commands in this process."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def run(self, *argv: str, timeout: float = WAIT) -> str:
        return self._commands.run(argv, timeout)

    def close(self) -> None:
        """It has no connections."""


class GatedPrograms:
    """Programs that the test lets end, and who runs them."""

    client: Direct | Helper

    def __init__(self, directory: Path) -> None:
        self.socket, self._log = directory / "helper.sock", directory / "log"
        self._gate, self._programs = directory / "gate", directory / "bin"
        self._filters = write_filters(directory, filters_of(*PROGRAMS))
        self._programs.mkdir()
        shared = {"log": self._log, "gate": self._gate}
        for name in ("lvextend", "lvremove"):
            self._program(name, PROGRAM.format(noise=NOISE, **shared))
        self._program("lvreduce", PROGRAM.format(noise="", **shared))
        self._program("lvs", f"#!/bin/sh\ncat {self._log}\n")
        self._log.touch()
        self._begin()

    def _begin(self) -> None:
        programs = [str(self._programs), "/usr/bin", "/bin"]
        locks = DiskLocks(str(self.socket.parent / "work"))
        self.client = Direct(Commands(str(self._filters), programs, disk_locks=locks))

    def _program(self, name: str, text: str) -> None:
        (self._programs / name).write_text(text)
        (self._programs / name).chmod(0o755)

    def let_end(self) -> None:
        self._gate.touch()

    def done(self) -> list[str]:
        """What the programs said, by their words."""
        lines = self._log.read_text().splitlines()
        return [f"{line.split()[0]} {Path(line.split()[1]).name}" for line in lines]

    def close(self) -> None:
        self.let_end()
        self.client.close()
        begun = [line for line in self.done() if line.startswith("begin")]
        until(lambda: len(self.done()) == 2 * len(begun))


class Killable(GatedPrograms):
    """A helper in a separate process."""

    def _begin(self) -> None:
        self._process = self._start()
        self.client = Helper(str(self.socket))

    def _start(self) -> subprocess.Popen[bytes]:
        user = pwd.getpwuid(os.getuid()).pw_name
        line = [sys.executable, "-m", "lunshare.helper.main", "--user", user]
        line += ["--socket", str(self.socket), "--filters", str(self._filters)]
        line += ["--exec-dirs", f"{self._programs},/usr/bin,/bin"]
        line += ["--config", str(self._served())]
        self.socket.unlink(missing_ok=True)
        started = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        until(self._answers)
        return started

    def _served(self) -> Path:
        file = self.socket.with_name("helper.conf")
        file.write_text("[helper]\nvolume_groups = lunshare\n")
        file.chmod(0o644)
        return file

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as open_connection:
            return open_connection.connect_ex(str(self.socket)) == 0

    def kill(self) -> None:
        """As kill -9 does; its programs continue, as KillMode of its unit says."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self._process = self._start()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.kill()


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedPrograms]:
    made = GatedPrograms(tmp_path)
    yield made
    made.close()


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Killable]:
    made = Killable(tmp_path)
    yield made
    made.close()


class Call:
    """A request in a separate thread."""

    def __init__(self, gated: GatedPrograms, *argv: str, timeout: float = WAIT) -> None:
        self.outcome: object = None
        self._asked = (gated.client, argv, timeout)
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        client, argv, timeout = self._asked
        try:
            self.outcome = client.run(*argv, timeout=timeout)
        except errors.DriverError as error:
            self.outcome = error

    def end(self) -> object:
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        return self.outcome


def test_change_continues_after_its_deadline(gated: GatedPrograms) -> None:
    with pytest.raises(errors.DeadlineExceeded, match="lvextend"):
        gated.client.run("lvextend", "-L", "8b", DISK, timeout=0.2)
    gated.let_end()
    until(lambda: gated.done() == ["begin lvextend", "end lvextend"])


def test_overdue_change_blocks_other_changes_of_its_group(gated: GatedPrograms) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        gated.client.run("lvextend", "-L", "8b", DISK, timeout=0.2)
    with pytest.raises(errors.DeadlineExceeded, match=f"earlier change.*{DISK}"):
        gated.client.run("lvremove", f"lunshare/volume-{OTHER}", timeout=0.2)
    with pytest.raises(errors.DeadlineExceeded, match="lvremove"):
        gated.client.run("lvremove", f"elsewhere/volume-{OTHER}", timeout=0.2)
    assert gated.done() == ["begin lvextend", "begin lvremove"]
    waiting = Call(gated, "lvremove", f"lunshare/volume-{OTHER}")
    gated.let_end()
    assert "said by" in str(waiting.end())
    until(lambda: gated.done().count("end lvremove") == 2)


def test_query_about_a_disk_waits_for_its_change(gated: GatedPrograms) -> None:
    changing = Call(gated, "lvextend", "-L", "8b", DISK)
    until(lambda: gated.done() == ["begin lvextend"])
    asking = Call(gated, "lvs", DISK)
    assert "begin" in gated.client.run("lvs", f"lunshare/volume-{OTHER}")
    assert asking.outcome is None
    gated.let_end()
    assert "end " in str(asking.end())
    assert "said by" in str(changing.end())


@pytest.mark.parametrize(
    "argv", [("lvextend", "-L", "8b", DISK), ("lvremove", f"{DISK}.new")]
)
def test_command_that_outlives_the_helper_does_not_run_twice(
    killable: Killable, argv: tuple[str, ...]
) -> None:
    gated = killable
    first = Call(gated, *argv)
    until(lambda: len(gated.done()) == 1)
    gated.kill()
    assert isinstance(first.end(), errors.Interrupted)
    gated.restart()
    with pytest.raises(errors.DeadlineExceeded, match="earlier change"):
        gated.client.run(*argv, timeout=0.2)
    second = Call(gated, *argv)
    with pytest.raises(errors.DeadlineExceeded):
        gated.client.run("lvs", DISK, timeout=0.2)
    assert len(gated.done()) == 1
    gated.let_end()
    assert "said by" in str(second.end())
    begin, end = f"begin {argv[0]}", f"end {argv[0]}"
    assert gated.done() == [begin, end, begin, end]


def test_many_clients_change_a_disk_in_turn(gated: GatedPrograms) -> None:
    gated.let_end()
    words = ("lvextend", "lvremove", "lvreduce")
    targets = (DISK, DISK, f"{DISK}.new")
    calls = [
        Call(gated, word, target)
        for _ in range(6)
        for word, target in zip(words, targets, strict=True)
    ]
    assert all("said by" in str(call.end()) for call in calls)
    done = gated.done()
    assert len(done) == 36
    for begin, end in zip(done[::2], done[1::2], strict=True):
        assert (begin.split()[0], end.split()[0]) == ("begin", "end")
        assert begin.split()[1] == end.split()[1]
    assert list((gated.socket.parent / "work").iterdir()) == []


# the client


@contextlib.contextmanager
def dying(path: Path) -> Iterator[list[list[str]]]:
    """A helper that ends when it has read a request; what it was asked."""
    asked: list[list[str]] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(frames.Closed):
                    first = frames.receive(connection)["arguments"]["argv"]
                    frames.send(connection, {"value": ""})
                    assert first == ["lvs"]
                    asked.append(frames.receive(connection)["arguments"]["argv"])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_request_that_may_have_started_is_not_sent_again(tmp_path: Path) -> None:
    with dying(tmp_path / "sock") as asked:
        client = Helper(str(tmp_path / "sock"))
        client.run("lvs")
        with pytest.raises(errors.Interrupted):
            client.run("lvremove", DISK)
        assert asked == [["lvremove", DISK]]
        client.run("lvs")
        assert client.run("lvs") == ""  # this one is sent again
        client.close()


def test_interrupted_verb_is_retried_once() -> None:
    calls = []

    @retried_once
    def verb(ends: int) -> str:
        calls.append(ends)
        if len(calls) <= ends:
            raise errors.Interrupted("sock", "it ended meanwhile")
        return "done"

    assert verb(0) == "done"
    calls.clear()
    assert verb(1) == "done"
    calls.clear()
    with pytest.raises(errors.Interrupted):
        verb(2)
    assert len(calls) == 2


# what a command works on


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        (f"lvcreate --yes -n volume-{UUID}.new -L 8b lunshare", DISK),
        (f"lvcreate --config a/b=0 --yes -n volume-{UUID} lunshare/pool", DISK),
        (f"lvcreate -s -kn -n volume-{UUID} lunshare/_snapshot-{OTHER}", DISK),
        (f"lvremove --yes {DISK}.tail", DISK),
        (f"lvremove --yes --select 'lv_name=\"volume-{UUID}\" || x' lunshare", DISK),
        (f"lvrename lunshare volume-{UUID}.new volume-{UUID}", DISK),
        (f"lvrename lunshare volume-{UUID} deleted-{OTHER}.8", DISK),
        (f"lvrename lunshare x-volume-{OTHER} volume-{UUID}", DISK),
        (f"lvextend --config 'a/b=0 c/d=1' -L 8b {DISK} /dev/loop0:0-24", DISK),
        (f"lvconvert --mergesnapshot lunshare/_snapshot-{OTHER}", None),
        ("vgchange --addtag lunshare:x:y lunshare", "lunshare"),
        ("lvchange -ay -K --select 'lv_name=~\"^v/\"' lunshare", "lunshare"),
    ],
)
def test_every_command_has_the_lock_of_its_disk(line: str, unit: str | None) -> None:
    argv = shlex.split(line)
    wanted = f"lunshare/_snapshot-{OTHER}" if unit is None else unit
    assert changes.disk_of(argv) == wanted
    assert changes.volume_group(argv) == "lunshare"
