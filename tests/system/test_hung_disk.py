# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A disk that hangs: its detach fails in time, and everything else continues."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.stands.waiting import Later, until
from tests.system.hosts import Traffic, block
from tests.system.kernel import Live
from tests.system.units import run
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = pytest.mark.system

DEADLINE = 2
# The deadline of the change, the client's extra time, and an emulated processor.
IN_TIME = 4 * DEADLINE


@contextlib.contextmanager
def _hanging(group: str, volume: str) -> Iterator[None]:
    """I/O of this volume's disk waits until the block ends."""
    mapped = "-".join(word.replace("-", "--") for word in (group, f"volume-{volume}"))
    run("dmsetup", "suspend", "--noflush", "--nolockfs", mapped)
    try:
        yield
    finally:
        run("dmsetup", "resume", mapped)


@pytest.mark.parametrize("finished_by", ["the next reconcile", "a repeated DELETE"])
def test_detach_from_a_hung_disk_fails_in_time_and_ends_later(
    daemon: MakeDaemon, host: MakeHost, finished_by: str
) -> None:
    often = {"reconcile_interval": 1} if finished_by == "the next reconcile" else {}
    node = daemon(node=often, backend={"lio_deadline": DEADLINE}).start()
    api = node.api
    hung, sound = api.volume(), api.volume()
    live = Live(hung)
    goes, stays, other = host("goes"), host("stays"), host("other")
    leaving = api.attach(hung, goes)
    info = leaving["connection_info"]
    session = goes.login(info)
    session.write(0, block("before"))
    elsewhere = stays.login(api.attach(sound, stays)["connection_info"])
    with Traffic(elsewhere, "rw") as traffic:
        with _hanging(node.group, hung):
            before = live.received(goes.initiator)
            write = Later(session.write, 0, block("in progress"))
            until(lambda: live.received(goes.initiator) > before)
            started = time.monotonic()
            status, answer = api.detach(leaving["id"])
            assert time.monotonic() - started < IN_TIME
            assert status == 503
            assert f"{DEADLINE} seconds" in answer["serviceUnavailable"]["message"]
            assert api.status(hung) == "detaching"
            assert goes.refused(info)
            for _ in range(2):
                created = api.attach(sound, other, "ro")
                assert not other.refused(created["connection_info"])
                assert api.detach(created["id"])[0] == 200
            assert not write.done
            traffic.wait_for_progress()
        if finished_by == "a repeated DELETE":
            assert api.detach(leaving["id"])[0] == 200
        path = f"/v3/attachments/{leaving['id']}"
        until(lambda: api.call("GET", path)[0] == 404)
        until(lambda: write.done)
        traffic.wait_for_progress()
    assert live.gone
    assert api.status(hung) == "available"
    assert goes.refused(info)
    # The write ran when the detach started, and reached the disk before its end.
    again = goes.login(api.attach(hung, goes)["connection_info"])
    assert again.read(0) == block("in progress")


def test_a_fence_on_a_hung_disk_is_pending_until_the_write_has_landed(
    daemon: MakeDaemon, host: MakeHost
) -> None:
    node = daemon(backend={"lio_deadline": DEADLINE}).start()
    api = node.api
    volume = api.volume(metadata={"lunshare:max_writers": "1"})
    live = Live(volume)
    alpha, beta, reader = host("alpha"), host("beta"), host("reader")
    ours, theirs = (api.attach(volume, each) for each in (alpha, beta))
    assert live.modes() == {alpha.initiator: "rw", beta.initiator: "ro"}
    session = alpha.login(ours["connection_info"])
    session.write(0, block("before"))
    path, to_ro = f"/v3/attachments/{ours['id']}", {"attachment": {"mode": "ro"}}
    to_rw = {"attachment": {"mode": "rw"}}
    promote = f"/v3/attachments/{theirs['id']}"
    with _hanging(node.group, volume):
        before = live.received(alpha.initiator)
        write = Later(session.write, 0, block("in progress"))
        until(lambda: live.received(alpha.initiator) > before)
        for _ in range(2):
            started = time.monotonic()
            status, answer = api.call("PUT", path, to_ro)
            assert time.monotonic() - started < IN_TIME
            assert status == 202, answer
            assert answer["attachment"]["fence"] == "fence pending"
            status, answer = api.call("PUT", promote, to_rw)
            assert status == 409, answer
        assert not write.done
    fenced = api.must("PUT", path, to_ro)["attachment"]
    assert fenced["fence"] == "fenced"
    third = reader.login(api.attach(volume, reader, "ro")["connection_info"])
    assert third.read(0) == block("in progress"), "it had landed"
    api.must("PUT", promote, to_rw)
    assert live.modes() == {
        alpha.initiator: "ro",
        beta.initiator: "rw",
        reader.initiator: "ro",
    }


def test_a_host_of_a_hung_and_a_sound_disk_is_fenced_where_it_can_be(
    daemon: MakeDaemon, host: MakeHost
) -> None:
    node = daemon(backend={"lio_deadline": DEADLINE}).start()
    api = node.api
    hung, sound = api.volume(), api.volume()
    alpha, beta = host("alpha"), host("beta")
    infos = [api.attach(each, alpha)["connection_info"] for each in (hung, sound)]
    session, other = (alpha.login(info) for info in infos)
    other.write(0, block("before"))
    survivor = beta.login(api.attach(sound, beta)["connection_info"])
    path = "/v3/lunshare/fences/alpha"
    body: dict[str, object] = {"fence": {}}
    with _hanging(node.group, hung):
        before = Live(hung).received(alpha.initiator)
        write = Later(session.write, 0, block("in progress"))
        until(lambda: Live(hung).received(alpha.initiator) > before)
        for _ in range(2):
            started = time.monotonic()
            status, answer = api.call("PUT", path, body)
            assert time.monotonic() - started < IN_TIME
            stands = {v["volume_id"]: v["status"] for v in answer["fence"]["volumes"]}
            assert (status, stands) == (202, {hung: "fence pending", sound: "fenced"})
        assert all(alpha.refused(info) for info in infos)
        survivor.write(0, block("taken over"))
        assert not write.done
    until(lambda: api.call("PUT", path, body)[0] == 200)
    until(lambda: write.done)
    assert Live(hung).gone
    assert list(Live(sound).modes()) == [beta.initiator]
    api.must("DELETE", path)
    assert alpha.login(infos[0]).read(0) == block("in progress")
