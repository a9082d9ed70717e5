# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bar of ``lunshare``, on a terminal and elsewhere, while a node takes its time."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.stands.node import Node, endpoint, initiator, node_fixture
from tests.stands.servers import LOOPBACK
from tests.stands.waiting import until

COMMAND = [sys.executable, "-m", "lunshare.agent.cli.main"]
GIB = 1024**3

__all__ = ["endpoint"]

node = node_fixture()


class Terminal:
    """A command on a terminal, and what it has drawn."""

    def __init__(self, *words: str) -> None:
        self._terminal, its = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *words], stdin=its, stdout=its, stderr=its
        )
        os.close(its)
        self.drawn = ""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._terminal, 4096):
                self.drawn += data.decode()
        except OSError:
            return  # the command has ended

    def has(self, text: str) -> bool:
        return text in self.drawn

    def end(self) -> tuple[int, str]:
        """Its exit code, and what remains on the screen when it has ended."""
        code = self.process.wait(60)
        self._thread.join(60)
        os.close(self._terminal)
        lines = [line.split("\r")[-1] for line in self.drawn.split("\r\n")]
        return code, "\n".join(lines)


class WipingNode(HTTPServer):
    """A node with a disk of 4 GiB whose wipe goes on when the test says so."""

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), WipesAnswer)
        self.remaining, self.polled = 4 * GIB, threading.Event()
        self.endpoint = f"http://{LOOPBACK}:{self.server_port}/v3"


class WipesAnswer(BaseHTTPRequestHandler):
    """GET /lunshare/wipes."""

    server: WipingNode

    def do_GET(self) -> None:
        remaining = self.server.remaining
        self.server.polled.set()
        wipe = (
            f'{{"name": "a", "backend": "b", "size": {4 * GIB}, "left": {remaining}}}'
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'{{"wipes": [{wipe if remaining else ""}]}}'.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def wiping() -> Iterator[WipingNode]:
    with WipingNode() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_terminal_shows_how_much_is_wiped(wiping: WipingNode) -> None:
    shown = Terminal("wipes", "--wait", "--endpoint", wiping.endpoint)
    assert wiping.polled.wait(60)
    for remaining, part in ((3, "25%"), (1, "75%")):
        wiping.remaining = remaining * GIB
        bar = "#" * (5 * (4 - remaining))
        until(partial(shown.has, f"wipes [{bar:<20}]  {part} "), seconds=20)
    wiping.remaining = 0
    assert shown.end() == (0, "NAME  BACKEND  SIZE  LEFT\n")


def test_what_is_no_terminal_gets_the_table_only(wiping: WipingNode) -> None:
    words = [*COMMAND, "wipes", "--wait", "--endpoint", wiping.endpoint]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as command:
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(2)  # as long as a terminal needs to show several bars
        wiping.remaining = 0
        assert command.communicate(timeout=60)[0] == "NAME  BACKEND  SIZE  LEFT\n"


def test_an_interrupt_leaves_a_clean_line(wiping: WipingNode) -> None:
    shown = Terminal("wipes", "--wait", "--endpoint", wiping.endpoint)
    until(partial(shown.has, "wipes ["), seconds=20)
    shown.process.send_signal(signal.SIGINT)
    assert shown.end() == (130, "")


def test_a_request_that_hangs_moves_a_mark(node: Node, endpoint: str) -> None:
    pair = f"--rw=alpha={initiator('alpha')}"
    subprocess.run(
        [*COMMAND, "share", "1", "--name", "v", pair, "--endpoint", endpoint],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with node.target().failures.hold("apply.closed"):
        shown = Terminal("mode", "v", "alpha", "ro", "--endpoint", endpoint)
        mark = re.compile(r"mode \[( *#)")
        until(lambda: len(set(mark.findall(shown.drawn))) > 1, seconds=20)
    code, screen = shown.end()
    assert (code, screen.split()[0], "[" in screen) == (0, "ATTACHMENT", False)
