# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The client sends its requests, and with them CHAP secrets, only to root's helper."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.errors import HelperUnreachable
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames

_NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o777)
    return tmp_path / "helper.sock"


@pytest.fixture
def impostor(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket on which another user listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        listener.bind(str(path))
        path.chmod(0o666)
        _listen_as_another_user(listener, monkeypatch)
        yield listener


def _listen_as_another_user(listener: socket.socket, patch: pytest.MonkeyPatch) -> None:
    """SO_PEERCRED of a client is who has called listen(2)."""
    if os.geteuid():
        patch.setattr(os, "geteuid", lambda: _NOBODY)  # the client's user, to itself
        return listener.listen()
    child = os.fork()
    if not child:
        try:
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            listener.listen()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_request_is_sent_to_another_user(
    path: Path, impostor: socket.socket
) -> None:
    client = Helper(str(path))
    with pytest.raises(HelperUnreachable, match="not root, listens there"):
        client.call("lio.check", timeout=1.0, prefix="secret")
    connection, _ = impostor.accept()
    connection.settimeout(10)
    with connection, pytest.raises(frames.Closed):
        frames.receive(connection)
