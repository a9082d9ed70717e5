# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attaches that fail for real reasons: nothing of them stays."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.daemons import OwnHelper
from tests.system.hosts import Traffic
from tests.system.kernel import Foreign, Live
from tests.system.units import run
from tests.system.volumes import BorrowVolume, MakeDaemon, MakeHost

pytestmark = pytest.mark.system


@contextlib.contextmanager
def _held(volume: str) -> Iterator[None]:
    """Another process has the disk open exclusively."""
    held = os.open(f"/dev/lunshare/volume-{volume}", os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def _portal_taken(_volume: str) -> Iterator[None]:
    """Another target listens on the port of every address."""
    foreign = Foreign("0.0.0.0:3260")
    try:
        before = foreign.tree()
        yield
        assert foreign.tree() == before
    finally:
        foreign.remove()


@contextlib.contextmanager
def _lost(volume: str) -> Iterator[None]:
    """The disk is missing under its name."""
    run("lvrename", "lunshare", f"volume-{volume}", f"lost-{volume}")
    try:
        yield
    finally:
        run("lvrename", "lunshare", f"lost-{volume}", f"volume-{volume}")


@pytest.mark.parametrize("trouble", [_held, _portal_taken, _lost])
def test_failed_first_attach_leaves_nothing_and_succeeds_later(
    api: Api,
    borrow: BorrowVolume,
    host: MakeHost,
    trouble: Callable[[str], contextlib.AbstractContextManager[None]],
) -> None:
    volume, one = borrow(shared=False), host("one")
    with trouble(volume):
        status, answer = api.create(volume, one)
        assert status == 500
        assert volume in answer["computeFault"]["message"]
        assert Live(volume).gone
        assert api.attachments(volume) == []
        assert api.status(volume) == "available"
    info = api.attach(volume, one)["connection_info"]
    assert not one.refused(info)


def test_attach_activates_an_inactive_disk(
    api: Api, volume: str, host: MakeHost
) -> None:
    run("lvchange", "-an", f"lunshare/volume-{volume}")
    one = host("one")
    info = api.attach(volume, one)["connection_info"]
    assert not one.refused(info)


def test_hosts_continue_while_the_helper_is_unavailable(
    own_helper: OwnHelper, daemon: MakeDaemon, host: MakeHost
) -> None:
    node = {"reconcile_interval": 1}
    api = daemon(node=node, helper=own_helper.socket).start().api
    volume, stays, comes = api.volume(), host("stays"), host("comes")
    live, created = Live(volume), api.attach(volume, stays)
    info = created["connection_info"]
    reserved = api.reserve(volume)
    with Traffic(stays.login(info), "rw") as traffic:
        before = live.identity(stays.initiator)
        own_helper.stop()
        for status, answer in (
            api.create(volume, comes),
            api.connect(reserved, comes),
            api.detach(created["id"]),
        ):
            assert status == 503
            message = answer["serviceUnavailable"]["message"]
            assert "lunshare-helper.socket" in message
        until(lambda: api.call("GET", "/readyz")[0] == 503)
        assert live.modes() == {stays.initiator: "rw"}
        assert live.identity(stays.initiator) == before
        traffic.wait_for_progress()
    own_helper.start()
    # The detach is completed, and the failed attach is undone.
    until(lambda: [each["id"] for each in api.attachments(volume)] == [reserved])
    assert live.gone
    until(lambda: api.call("GET", "/readyz")[0] == 200)
    assert stays.refused(info)
    status, answer = api.connect(reserved, comes)
    assert status == 200
    assert not comes.refused(answer["attachment"]["connection_info"])
