# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A guest whose emulator loses a timer: a program acts as QEMU."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import guest
from tests.lab.guest import Guest, Parts
from tests.lab.steps import LabError

# Acts as QEMU: each start prints the next text on the console, and answers the
# commands of a boot on the control socket.
_QEMU = """
import json, pathlib, socket, sys
words = dict(zip(sys.argv, sys.argv[1:]))
file = pathlib.Path(__file__).with_name("texts")
texts = json.loads(file.read_text())
file.write_text(json.dumps(texts[1:]))
pathlib.Path(words["-serial"].removeprefix("file:")).write_text(texts[0])
server = socket.socket(socket.AF_UNIX)
server.bind(words["-qmp"].removeprefix("unix:").partition(",")[0])
server.listen()
lines = server.accept()[0].makefile("rw")
lines.write('{"QMP": {}}\\n')
while not lines.flush() and lines.readline():
    lines.write('{"return": " HOST_FORWARD 9 127.0.0.1 2222 "}\\n')
"""


@pytest.fixture
def new_guest(tmp_path: Path) -> Iterator[Callable[..., Guest]]:
    """A guest whose boots print these texts."""
    guests = []

    def one(*texts: bytes) -> Guest:
        program = tmp_path / "qemu"
        program.write_text(_QEMU)
        (tmp_path / "texts").write_text(json.dumps([text.decode() for text in texts]))
        parts = Parts(tmp_path, [], qemu=[sys.executable, str(program)])
        guests.append(Guest(parts, tmp_path, outlives_us=False))
        return guests[0]

    yield one
    for each in guests:
        each.leave()


def test_guest_that_lost_its_timer_is_restarted(new_guest, tmp_path, capsys):
    new_guest(guest.LOST, guest.LOST, guest.READY).boot()
    assert json.loads((tmp_path / "texts").read_text()) == []
    assert capsys.readouterr().err.count("switched off and on") == 2


def test_guest_that_always_hangs_is_reported_with_its_console(new_guest):
    with pytest.raises(LabError, match=r"hung 3 times(?s:.)*timer wakeup"):
        new_guest(guest.LOST, guest.LOST, guest.LOST).boot()
