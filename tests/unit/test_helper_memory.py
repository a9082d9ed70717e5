# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a process with the daemon's user can make the helper hold, run and mount."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from lunshare.drivers import errors
from lunshare.drivers.protocol import frames, messages
from lunshare.helper import connections
from lunshare.helper.commands import Commands
from lunshare.helper.connections import Connections
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.mounts import KERNEL, Mount, Mounts
from lunshare.helper.nfs import files
from lunshare.helper.nfs.files import OpenShare
from lunshare.helper.nfs.share_requests import FileName
from lunshare.helper.served import Served
from tests.stands.waiting import until
from tests.unit.helper_process import FILTERS, HelperProcess

MIB = 1024**2
LVS = [
    "lvs",
    "--reportformat",
    "json",
    "--units",
    "b",
    "--nosuffix",
    "-o",
    "lv_name",
    "lunshare",
]
MOUNT = ["mount", "-t", "nfs", "-o", "nosuid,nodev,noexec,nosymfollow", "nas:/srv"]


class ScriptedPrograms:
    """The tree's filters, over programs that are shell scripts."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.base = directory, directory / "mnt"
        rules, self._programs = directory / "rootwrap.d", directory / "bin"
        for each in (rules, self._programs, self.base):
            each.mkdir(mode=0o755)
        for source in FILTERS.iterdir():
            shutil.copyfile(source, rules / source.name)
            (rules / source.name).chmod(0o644)
        self.table = directory / "mountinfo"
        self.table.touch()
        served = Served(
            groups=("lunshare", "o*"), shares=("nas:/srv",), base=str(self.base)
        )
        self.commands = Commands(
            str(rules), [str(self._programs)], served, mounts=Mounts(str(self.table))
        )

    def program(self, name: str, script: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)

    def mkdir(self, number: int) -> None:
        point = f"{self.base}/{number:032x}"
        self.commands.run(("mkdir", "-p", "-m", "0700", point), 10)


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedPrograms:
    return ScriptedPrograms(tmp_path)


# mounts


def test_number_of_mount_points_is_limited(scripted: ScriptedPrograms) -> None:
    """Each is a directory in /run, whose inodes the whole node shares."""
    scripted.program("mkdir", 'exec /bin/mkdir "$@"')
    for number in range(255):
        (scripted.base / f"{number:032x}").mkdir()
    scripted.mkdir(255)
    for number in (256, 257):
        with pytest.raises(errors.HelperRefused, match="256 mount points"):
            scripted.mkdir(number)
    scripted.mkdir(7)  # it exists
    assert len(list(scripted.base.iterdir())) == 256


def test_nothing_is_mounted_over_a_mounted_share(scripted: ScriptedPrograms) -> None:
    """With nosharecache each mount is another one, up to the node's fs.mount-max."""
    scripted.program("mount", f'echo "$6" >>{scripted.directory}/mounted')
    point = f"{scripted.base}/{'0' * 32}"
    scripted.commands.run((*MOUNT, point), 10)
    scripted.table.write_text(f"90 28 0:55 / {point} rw - nfs4 nas:/srv rw\n")
    with pytest.raises(errors.CommandFailed, match="already mounted"):
        scripted.commands.run((*MOUNT, point), 10)
    scripted.commands.run((*MOUNT, f"{scripted.base}/{'1' * 32}"), 10)
    assert len((scripted.directory / "mounted").read_text().split()) == 2


# commands


def test_output_of_a_command_is_limited(scripted: ScriptedPrograms) -> None:
    """The client chooses the columns, and may repeat them."""
    scripted.program("lvs", "head -c 16777216 /dev/zero")
    assert len(scripted.commands.run(LVS, 30)) == 16 * MIB
    for stream in ("", " >&2"):
        scripted.program("lvs", f"exec yes{stream}")
        with pytest.raises(errors.CommandFailed, match="more than 16777216 byte"):
            scripted.commands.run(LVS, 600)


def test_number_of_columns_is_limited(scripted: ScriptedPrograms) -> None:
    scripted.program("lvs", "echo well")
    line = [*LVS[:-2], ",".join(["lv_name"] * 16), "lunshare"]
    assert scripted.commands.run(line, 10) == "well\n"
    line[-2] += ",lv_size"
    with pytest.raises(errors.HelperRefused):
        scripted.commands.run(line, 10)


def test_number_of_queries_at_once_is_limited(scripted: ScriptedPrograms) -> None:
    """The memory of all is limited together, and changes need a part of it."""
    started, end = scripted.directory / "started", scripted.directory / "end"
    started.mkdir()
    scripted.program(
        "lvs", f"touch {started}/$$; until [ -e {end} ]; do sleep 0.05; done; echo well"
    )
    other = [*LVS[:-1], "other"]
    with ThreadPoolExecutor(40) as pool:
        try:
            first = [pool.submit(scripted.commands.run, LVS, 60.0) for _ in range(20)]
            until(lambda: len(list(started.iterdir())) == 16)
            with pytest.raises(errors.HelperBusy):
                scripted.commands.run(LVS, 0.3)
            last = pool.submit(scripted.commands.run, other, 60.0)
            until(lambda: len(list(started.iterdir())) == 17)
        finally:
            end.touch()
        assert [each.result() for each in (*first, last)] == ["well\n"] * 21


# lists


def test_number_of_long_lists_at_once_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One share may be mounted at many points, with 100,000 names in each list."""
    for number in range(1100):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(files, "_LIST_SECONDS", 0.1)
    end, waiting = threading.Event(), list[int]()

    def list_it(patient: bool) -> int:
        calls = itertools.count()

        def clock(done: int) -> None:
            if patient and next(calls) == 1050:
                waiting.append(done)
                end.wait(30)

        mount = Mount(str(tmp_path), 0, "nfs4", "nas:/srv")
        directory = os.open(tmp_path, os.O_DIRECTORY)
        try:
            share = OpenShare(directory, mount, KERNEL, is_exported, clock)
            return len(files.list_files(share, FileName(str(tmp_path))))
        finally:
            os.close(directory)

    with ThreadPoolExecutor(8) as pool:
        try:
            lists = [pool.submit(list_it, True) for _ in range(8)]
            until(lambda: len(waiting) == 8)
            with pytest.raises(errors.HelperBusy):
                list_it(False)
        finally:
            end.set()
        assert [each.result() for each in lists] == [1100] * 8
    assert list_it(False) == 1100


# answers


@pytest.fixture
def process(tmp_path: Path) -> Iterator[HelperProcess]:
    made = HelperProcess(tmp_path, "lvs")
    (tmp_path / "bin" / "lvs").write_text(
        "#!/bin/sh\n/usr/bin/head -c 8388608 /dev/zero | /usr/bin/tr '\\0' x\n"
    )
    made.start("volume_groups = lunshare")
    yield made
    made.stop()


def resident(process: HelperProcess) -> int:
    """The most memory that the helper has had, in MiB."""
    assert process.process
    text = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found
    return int(found[1]) // 1024


def test_answers_that_nobody_reads_use_little_memory(process: HelperProcess) -> None:
    """A hundred of them were more than the unit's MemoryMax."""
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(process.open_connection()) for _ in range(100)]
        request = messages.request("run", 60, {"argv": LVS})
        for each in deaf:
            frames.send(each, request)
        starts = [each.recv(4) for each in deaf]  # each has an answer
        assert all(starts)
        assert resident(process) < 1400
        with process.open_connection() as late:
            frames.send(late, messages.request("lio.check", 5, {"prefix": "p:"}))
            assert "value" in frames.receive(late)


def test_large_requests_are_not_kept_while_their_answers_are_sent(
    process: HelperProcess,
) -> None:
    """Only eight may be in memory, but a full socket kept each for ten seconds."""
    names = {"\u20ac" * 4000 + str(n): 0 for n in range(20)}  # the answer shows them
    large = messages.request("run", 5, {**names, "x": ["\u20ac" * 8] * 130_000})
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(process.open_connection()) for _ in range(60)]
        for each in deaf:
            frames.send(each, large)
        with process.open_connection() as late:
            frames.send(late, large)
            assert frames.receive(late)["error"] == "invalid-value"
    assert resident(process) < 450


def test_large_answer_is_complete(process: HelperProcess) -> None:
    answers: list[object] = []

    def ask() -> None:
        answers.append(process.client().run(*LVS))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == ["x" * 8 * MIB] * 4


def test_client_that_reads_slowly_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer would stay in memory for as long as it likes."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Connections().admit(ours, 1000)
        assert peer
        sender = ThreadPoolExecutor(1).submit(peer.send, bytes(8 * MIB))
        while not sender.done():
            theirs.recv(4096)  # 12 ms for each: 25 seconds for all
            wait([sender], 0.012)
        with pytest.raises(OSError):
            sender.result()
