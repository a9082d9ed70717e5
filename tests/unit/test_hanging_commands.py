# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that cannot be killed, because the kernel waits for a disk or a server."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lunshare.drivers.errors import CommandFailed, DeadlineExceeded, HelperBusy
from lunshare.helper import commands
from lunshare.helper.commands import MAX_HUNG_EACH, Commands
from tests.stands.waiting import until
from tests.unit.helper_thread import filters_of, write_filters

# A process that is traced is gone only when its tracer has waited for it. So after
# SIGKILL it is there for its parent, as one that waits in the kernel.
HUNG = """#!{python} -IS
import ctypes, os, pathlib, sys, time
if sys.argv[-1] != "hung" or not os.path.exists({tracers!r}):
    sys.exit(print("well"))
libc, me = ctypes.CDLL(None), os.getpid()
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, any
read, write = os.pipe()
if not os.fork():
    os.setsid()
    for each in (0, 1, 2):
        os.dup2(os.open("/dev/null", os.O_RDWR), each)
    assert libc.ptrace(0x4206, me, None, None) == 0  # PTRACE_SEIZE
    pathlib.Path({tracers!r}, str(os.getpid())).touch()
    os.write(write, b"x")
    time.sleep(600)
os.read(read, 1)
pathlib.Path({traced!r}, str(me)).touch()
time.sleep(600)
"""


class HangingPrograms:
    """Programs that hang when they are about the group ``hung``."""

    def __init__(self, directory: Path) -> None:
        names, programs = ("lvs", "umount", "lvremove"), directory / "bin"
        self._tracers, self._traced = directory / "tracers", directory / "traced"
        for each in (programs, self._tracers, self._traced):
            each.mkdir(mode=0o755)
        text = HUNG.format(
            python=sys.executable, tracers=str(self._tracers), traced=str(self._traced)
        )
        for name in names:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        rules = write_filters(directory, filters_of(*names))
        self.ended = False
        self.commands = Commands(str(rules), (str(programs),))

    def run(self, *words: str, seconds: float = 20) -> str:
        return self.commands.run(words, seconds)

    def hang(self, *words: str) -> None:
        """Run it until it hangs, and give it up."""
        before = len(list(self._traced.iterdir()))
        with pytest.raises(DeadlineExceeded):
            self.run(*words, seconds=4)
        assert len(list(self._traced.iterdir())) == before + 1

    def end(self) -> None:
        """The disk answers again."""
        self.ended = True
        for each in self._tracers.iterdir():
            os.kill(int(each.name), signal.SIGKILL)
            each.unlink()
        self._tracers.rmdir()
        for name in ("lvs", "umount"):
            until(partial(self._runs, name))

    def _runs(self, name: str) -> bool:
        try:
            return self.run(name, "hung") == "well\n"
        except CommandFailed:
            return False


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingPrograms]:
    made = HangingPrograms(tmp_path)
    yield made
    if not made.ended:
        made.end()


def test_hung_commands_of_one_group_are_limited(
    hanging: HangingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each health check of its backend leaves one; they used up those of all others."""
    monkeypatch.setattr(commands, "MAX_HUNG_EACH", 1)
    hanging.hang("lvs", "hung")
    with pytest.raises(CommandFailed, match="1 commands on hung hang in the kernel"):
        hanging.run("lvs", "hung")
    assert hanging.run("lvs", "other") == "well\n"
    assert hanging.run("umount", "/mnt") == "well\n"
    hanging.end()


def test_hung_commands_are_limited_in_total(
    hanging: HangingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MAX_HUNG", 1)
    hanging.hang("umount", "hung")
    with pytest.raises(CommandFailed, match="1 commands hang in the kernel"):
        hanging.run("lvs", "other")
    hanging.end()


def test_change_without_a_thread_is_not_started(
    hanging: HangingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel says when pids or memory are used up was a fault."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HelperBusy, match="further thread"):
        hanging.run("lvremove", "vg/volume")


def test_one_group_has_less_than_half_of_the_hung_commands() -> None:
    assert MAX_HUNG_EACH * 2 < commands.MAX_HUNG
