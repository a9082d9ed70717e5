# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What systemd receives from the daemon and the helper."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import pytest

from lunshare.drivers.sd_notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_receives_the_lines(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@lunshare-{uuid.uuid4()}" if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0", 1))
        notify("READY=1", "STATUS=serving")
        assert systemd.recv(100) == b"READY=1\nSTATUS=serving"


def test_outside_a_unit_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    created: list[object] = []
    monkeypatch.setattr(socket, "socket", lambda *given: created.append(given))
    notify("READY=1")
    assert created == []


def test_a_missing_systemd_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
