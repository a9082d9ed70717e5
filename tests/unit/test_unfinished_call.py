# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit's call that runs while it is repeated: the repeat comes after it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from lunshare.drivers.conformance.interruption import (
    Killed,
    UnfinishedCall,
    WatchedRoot,
)
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.protocol import frames


class Client(NoRoot):
    """A client of a helper, which reads reports until the answer comes."""

    def __init__(self) -> None:
        self.client, self.helper = socket.socketpair()

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        frames.send(self.client, verb)
        while "progress" in (answer := frames.receive(self.client)):
            pass
        return answer


def test_a_call_has_started_when_the_helper_has_locked_the_disk():
    """Its request is sent, but that of its repeat may be before it at the lock."""
    client, call = Client(), UnfinishedCall(1)
    with client.client, client.helper:
        with pytest.raises(Killed):
            WatchedRoot(client, call).call("disk.copy")
        assert frames.receive(client.helper) == "disk.copy"
        assert not call.started.wait(0.1)
        frames.send(client.helper, {"progress": 0})
        assert call.started.wait(20)
        frames.send(client.helper, {"done": True})
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
