# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit's call that runs while it is repeated: the repeat comes after it."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from lunshare.drivers.conformance.interruption import (
    Killed,
    UnfinishedCall,
    WatchedRoot,
)
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.protocol import frames


class SlowClient(NoRoot):
    """A client of a helper that sends its request when it is allowed to."""

    def __init__(self) -> None:
        self.may_send, self.preparing = threading.Event(), threading.Event()
        self.client, self.server = socket.socketpair()

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self.preparing.set()
        assert self.may_send.wait(20)
        frames.send(self.client, verb)
        return frames.receive(self.client)


def test_a_call_has_started_when_its_request_is_sent():
    client, call = SlowClient(), UnfinishedCall(1)
    with client.client, client.server:
        with pytest.raises(Killed):
            WatchedRoot(client, call).call("disk.copy")
        assert client.preparing.wait(20)
        assert not call.started.is_set()
        client.may_send.set()
        assert call.started.wait(20)
        assert frames.receive(client.server) == "disk.copy"
        frames.send(client.server, "done")
        call.finish()


class NoClient(NoRoot):
    """Does its work without a request."""

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        return verb


def test_a_call_that_sends_no_request_has_started_at_its_end():
    call = UnfinishedCall(1)
    with pytest.raises(Killed):
        WatchedRoot(NoClient(), call).call("disk.copy")
    assert call.started.wait(20)
    call.finish()
