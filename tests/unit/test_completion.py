# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Words of ``lunshare`` that a real bash completes, with a node that listens."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from lunshare.agent.cli import main as cli
from tests.stands.node import endpoint, initiator, node_fixture
from tests.stands.servers import LOOPBACK, free_port

Complete = Callable[[str], list[str]]

PROGRAMS = Path(sys.executable).parent
NOBODY = f"http://{LOOPBACK}:{free_port()}/v3"
#: Escape and * insert every completion into the line, control-A goes to its start.
INSERT_ALL, TO_START = "\x1b*", "\x01"

__all__ = ["endpoint"]

node = node_fixture()


@pytest.fixture
def complete(endpoint: str, tmp_path: Path) -> Iterator[Complete]:
    """Type a line at a bash on a terminal; return its words, completed at its end."""
    terminal, its = pty.openpty()
    words, to_words = os.pipe()
    setting = {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "LUNSHARE_ENDPOINT": endpoint,
    }
    with (
        subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=its,
            stdout=its,
            stderr=its,
            cwd=tmp_path,
            env=setting,
            pass_fds=[to_words],
            start_new_session=True,
        ) as bash,
        os.fdopen(words) as answers,
    ):
        os.close(its)
        os.close(to_words)
        typed(terminal, f'words() {{ printf "%s\\n" "$@" END >&{to_words}; }}')
        typed(terminal, 'eval "$(register-python-argcomplete lunshare)"')

        def complete(line: str) -> list[str]:
            typed(terminal, f"{line}{INSERT_ALL}{TO_START}words ")
            return list(until_end(answers))

        yield complete
        typed(terminal, "exit")
        bash.wait(30)
    os.close(terminal)


def typed(terminal: int, line: str) -> None:
    os.write(terminal, f"{line}\r".encode())


def until_end(answers: IO[str]) -> Iterator[str]:
    for line in answers:
        if line == "END\n":
            return
        yield line.rstrip("\n")


@pytest.fixture
def volume(endpoint: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = [f"--rw=alpha={initiator('alpha')}", f"--ro=beta={initiator('beta')}"]
    words += ["--name", "first", "--endpoint", endpoint]
    assert cli.main(["share", "1", *words]) == 0
    return capsys.readouterr().out.splitlines()[1].split()[0]


def test_commands_options_and_choices(complete: Complete) -> None:
    assert complete("lunshare hand") == ["lunshare", "handover"]
    assert complete("lunshare handover v --f")[3:] == ["--force", "--from"]
    assert complete("lunshare delete-orphan ")[2:] == ["disk", "export", "snapshot"]
    formats = complete("lunshare consumer-config x --format ")[4:]
    assert formats == ["fstab", "ipxe", "iscsiadm", "libvirt", "multipath"]
    assert complete("lunshare user set-")[2:] == ["set-roles"]


def test_names_that_the_node_has(complete: Complete, volume: str) -> None:
    assert complete("lunshare why alpha fi")[3:] == ["first"]
    assert complete(f"lunshare prove {volume[:6]}")[2:] == [volume]
    assert complete("lunshare handover first --to ")[4:] == ["alpha", "beta"]
    assert complete("lunshare fence b")[2:] == ["beta"]
    pair = f"alpha={initiator('alpha')}"
    assert complete("lunshare attach first alpha=")[3:] == [pair]
    assert complete("lunshare share 1 --type mul")[4:] == ["multiattach"]


def test_a_node_that_does_not_answer_has_no_names(complete: Complete) -> None:
    assert complete(f"lunshare fence --endpoint {NOBODY} ")[4:] == []
    line = f"lunshare hosts --endpoint {NOBODY} --w"
    assert complete(line)[4:] == ["--watch"]
