# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Requests that two programs may end in two places, over a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.http import listener
from lunshare.agent.listen_addresses import Address
from tests.ambiguous_requests import READ_AS_ONE, REFUSED

LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Recorder:
    """A server that notes the paths that it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self.paths = str(path), list[str]()
        self.server = listener.serve(self._app, [Address(self.path)], 1)
        self.server.start()

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.paths.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return []

    def answers(self, data: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(20)
            wire.connect(self.path)
            wire.sendall(data)
            wire.shutdown(socket.SHUT_WR)
            return b"".join(iter(partial(wire.recv, 65536), b""))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    made = Recorder(tmp_path_factory.mktemp("http") / "api.sock")
    yield made
    made.server.stop()


@pytest.mark.parametrize("data", REFUSED)
def test_nothing_of_it_is_run_nor_what_follows(data: bytes, recorder: Recorder) -> None:
    recorder.paths.clear()
    answers = recorder.answers(data + LAST)
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert (answers.count(b"HTTP/1.1 "), recorder.paths) == (1, [])


@pytest.mark.parametrize("data", READ_AS_ONE)
def test_an_unusual_form_is_one_request(data: bytes, recorder: Recorder) -> None:
    recorder.paths.clear()
    answers = recorder.answers(data + LAST)
    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert recorder.paths == ["/", "/last"]
