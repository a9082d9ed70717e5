# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attach and detach through the API, checked in the kernel and on hosts."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.stands.waiting import together
from tests.system.api import Api
from tests.system.hosts import Traffic, block, write_protected
from tests.system.kernel import Live
from tests.system.volumes import BorrowVolume, MakeDaemon, MakeHost, Volumes

pytestmark = pytest.mark.system


# The number of attachments


def test_second_attachment_of_a_plain_volume_is_400(
    api: Api, borrow: BorrowVolume, host: MakeHost
) -> None:
    volume, first, second = borrow(shared=False), host("first"), host("second")
    info = api.attach(volume, first)["connection_info"]
    with Traffic(first.login(info), "rw") as traffic:
        for other in (second, None):
            status, answer = api.create(volume, other)
            assert status == 400, answer
            assert "multiattach" in answer["badRequest"]["message"]
        assert Live(volume).modes() == {first.initiator: "rw"}
        traffic.wait_for_progress()
    assert len(api.attachments(volume)) == 1


def test_shared_volume_accepts_parallel_attaches_in_any_modes(
    api: Api, volume: str, host: MakeHost
) -> None:
    reserved = [api.reserve(volume, mode) for mode in ("rw", "ro")]
    # A third of the 32 threads may wait for a volume that is busy. On the stock
    # kernel under QEMU an attach takes up to a second, and more than ten would get 409.
    hosts = [host(f"host-{number}") for number in range(8)]
    modes = ["rw" if number % 2 else "ro" for number in range(8)]
    calls: list[Callable[[], object]] = [
        functools.partial(api.connect, reserved[0], host("reserved-rw")),
        functools.partial(api.reserve, volume),
        *(
            functools.partial(api.create, volume, each, mode)
            for each, mode in zip(hosts, modes, strict=True)
        ),
        functools.partial(api.connect, reserved[1], host("reserved-ro")),
    ]
    answers = [each for each in together(calls) if isinstance(each, tuple)]
    assert [status for status, _ in answers] == [200] * 10, answers
    wanted = dict(zip([each.initiator for each in hosts], modes, strict=True))
    wanted[host("reserved-rw").initiator] = "rw"
    wanted[host("reserved-ro").initiator] = "ro"
    assert Live(volume).modes() == wanted
    assert len(api.attachments(volume)) == 11


# Modes


def test_target_enforces_the_mode_of_each_attachment(
    api: Api, volume: str, host: MakeHost
) -> None:
    writer, reader, other = host("writer"), host("reader"), host("other")
    infos = {
        each.name: api.attach(volume, each, mode)["connection_info"]
        for each, mode in ((reader, "ro"), (writer, None), (other, "rw"))
    }
    modes = {name: info["access_mode"] for name, info in infos.items()}
    assert modes == {"reader": "ro", "writer": "rw", "other": "rw"}
    session = writer.login(infos["writer"])
    session.write(0, block("the writer's"))
    reading = reader.login(infos["reader"])
    assert reading.read(0) == block("the writer's")
    assert reading.write_protected
    assert write_protected(reading)
    assert not session.write_protected
    other.login(infos["other"]).write(8, block("the other's"))
    assert reading.read(0) == block("the writer's")
    assert reading.read(8) == block("the other's")


@pytest.mark.parametrize("mode", ["wo", "RW", "", "readonly"])
def test_unknown_mode_is_400(api: Api, volume: str, host: MakeHost, mode: str) -> None:
    status, answer = api.create(volume, host("host"), mode)
    assert status == 400
    assert "mode" in answer["badRequest"]["message"]
    assert Live(volume).gone


def test_two_modes_of_one_initiator_are_409_and_change_nothing(
    api: Api, volume: str, host: MakeHost
) -> None:
    reader = host("reader")
    first = api.attach(volume, reader, "ro")
    session = reader.login(first["connection_info"])
    before = Live(volume).identity(reader.initiator)
    status, answer = api.create(volume, reader, "rw")
    assert status == 409
    message = answer["conflictingRequest"]["message"]
    assert reader.initiator in message
    assert "mixed_modes_per_host" in message
    assert Live(volume).identity(reader.initiator) == before
    assert write_protected(session)
    assert [each["id"] for each in api.attachments(volume)] == [first["id"]]


def test_widened_mode_is_reported_in_the_answer(
    daemon: MakeDaemon, host: MakeHost
) -> None:
    api = daemon(node={"mixed_modes_per_host": "widen"}).start().api
    volume, one = api.volume(), host("one")
    reading = api.attach(volume, one, "ro")
    session = one.login(reading["connection_info"])
    assert "mixed_modes" not in reading["connection_info"]
    assert write_protected(session)
    writing = api.attach(volume, one, "rw")
    assert "lets this host write" in writing["connection_info"]["mixed_modes"]
    assert Live(volume).modes() == {one.initiator: "rw"}
    assert not session.alive
    session = one.login(reading["connection_info"])
    session.write(0, block("widened"))
    second = api.attach(volume, one, "ro")["connection_info"]
    assert second["access_mode"] == "ro"
    assert "lets this host write" in second["mixed_modes"]
    assert api.detach(writing["id"])[0] == 200
    assert Live(volume).modes() == {one.initiator: "ro"}
    assert not session.alive
    assert write_protected(one.login(reading["connection_info"]))


# One initiator, several attachments


def test_acl_is_removed_with_the_last_attachment_of_its_initiator(
    api: Api, volume: str, host: MakeHost
) -> None:
    one, live = host("one"), Live(volume)
    first, second = (api.attach(volume, one) for _ in range(2))
    assert first["connection_info"]["auth_password"]
    for key in ("auth_username", "auth_password", "target_iqn"):
        assert first["connection_info"][key] == second["connection_info"][key]
    with Traffic(one.login(first["connection_info"]), "rw") as traffic:
        before = live.identity(one.initiator)
        assert api.detach(first["id"])[0] == 200
        assert live.identity(one.initiator) == before
        traffic.wait_for_progress()
    assert api.detach(second["id"])[0] == 200
    assert live.gone
    assert one.refused(second["connection_info"])


# PUT: the same connector, and another one


def test_put_with_the_same_connector_changes_nothing(
    api: Api, volume: str, host: MakeHost
) -> None:
    one, live = host("one"), Live(volume)
    created = api.attach(volume, one)
    with Traffic(one.login(created["connection_info"]), "rw") as traffic:
        before = live.identity(one.initiator)
        for _ in range(2):
            status, again = api.connect(created["id"], one)
            assert status == 200
            assert again["attachment"]["connection_info"] == created["connection_info"]
        assert live.identity(one.initiator) == before
        traffic.wait_for_progress()


def test_put_with_another_connector_gives_the_volume_to_that_host(
    api: Api, volume: str, host: MakeHost
) -> None:
    old, new, third, live = host("old"), host("new"), host("third"), Live(volume)
    moved = api.attach(volume, old, "ro")
    stays = api.attach(volume, third)
    session = old.login(moved["connection_info"])
    with Traffic(third.login(stays["connection_info"]), "rw") as traffic:
        before = live.identity(third.initiator)
        status, answer = api.connect(moved["id"], new)
        assert status == 200
        assert live.modes() == {new.initiator: "ro", third.initiator: "rw"}
        assert live.identity(third.initiator) == before
        traffic.wait_for_progress()
    assert not session.alive
    info = answer["attachment"]["connection_info"]
    assert old.refused(moved["connection_info"])
    assert old.refused(info)
    assert write_protected(new.login(info))


# Detach


def test_detach_ends_only_the_session_of_that_host(
    api: Api, volume: str, host: MakeHost
) -> None:
    live = Live(volume)
    hosts = {mode: host(f"stays-{mode}") for mode in ("rw", "ro")}
    goes = host("goes")
    leaving = api.attach(volume, goes)
    infos = {m: api.attach(volume, h, m)["connection_info"] for m, h in hosts.items()}
    session = goes.login(leaving["connection_info"])
    second_session = goes.login(leaving["connection_info"])
    with (
        Traffic(hosts["rw"].login(infos["rw"]), "rw") as writing,
        Traffic(hosts["ro"].login(infos["ro"]), "ro") as reading,
    ):
        before = [live.identity(each.initiator) for each in hosts.values()]
        status, answer = api.detach(leaving["id"])
        assert status == 200
        assert len(answer["attachments"]) == 2
        assert not session.alive
        assert not second_session.alive
        assert goes.refused(leaving["connection_info"])
        assert [live.identity(each.initiator) for each in hosts.values()] == before
        writing.wait_for_progress()
        reading.wait_for_progress()


def test_second_detach_is_404_and_parallel_detaches_are_never_500(
    api: Api, volume: str, host: MakeHost
) -> None:
    created = api.attach(volume, host("one"))
    calls = [functools.partial(api.detach, created["id"]) for _ in range(6)]
    statuses = sorted(status for status, _ in together(calls))
    assert statuses == [200] + [404] * 5
    assert api.detach(created["id"])[0] == 404
    assert api.status(volume) == "available"
    assert Live(volume).gone


def test_parallel_attach_and_detach_match_their_answers(
    api: Api, volume: str, host: MakeHost
) -> None:
    stays = host("stays")
    info = api.attach(volume, stays)["connection_info"]
    going = [api.attach(volume, host(f"going-{n}"), "ro")["id"] for n in range(4)]
    coming = [host(f"coming-{n}") for n in range(4)]
    with Traffic(stays.login(info), "rw") as traffic:
        calls: list[Callable[[], object]] = []
        for leaving, arriving in zip(going, coming, strict=True):
            calls.append(functools.partial(api.detach, leaving))
            calls.append(functools.partial(api.create, volume, arriving, "ro"))
        answers = together(calls)
        assert [status for status, _ in answers] == [200] * 8, answers
        traffic.wait_for_progress()
    wanted = {each.initiator: "ro" for each in coming} | {stays.initiator: "rw"}
    assert Live(volume).modes() == wanted


def test_delete_of_an_attached_volume_is_refused(
    api: Api, borrow: BorrowVolume, volumes: Volumes, host: MakeHost
) -> None:
    volume, one = borrow(shared=False), host("one")
    created = api.attach(volume, one)
    with Traffic(one.login(created["connection_info"]), "rw") as traffic:
        status, answer = api.call("DELETE", f"/v3/volumes/{volume}")
        assert status == 400, answer
        traffic.wait_for_progress()
    assert api.detach(created["id"])[0] == 200
    api.delete_volume(volume)
    volumes.forget(volume)
    assert Live(volume).gone


def test_the_target_enforces_a_writers_policy_and_a_change_of_mode(
    api: Api, volume: str, host: MakeHost
) -> None:
    writer, reader = host("writer"), host("reader")
    metadata = f"/v3/volumes/{volume}/metadata"
    policy = {"lunshare:writers": writer.initiator}
    api.must("PUT", metadata, {"metadata": policy})
    ours, theirs = api.attach(volume, writer), api.attach(volume, reader)
    assert Live(volume).modes() == {writer.initiator: "rw", reader.initiator: "ro"}
    writer.login(ours["connection_info"]).write(0, block("before"))
    reading = reader.login(theirs["connection_info"])
    assert write_protected(reading)

    path = f"/v3/attachments/{ours['id']}"
    fenced = api.must("PUT", path, {"attachment": {"mode": "ro"}})["attachment"]
    assert fenced["fence"] == "fenced"
    assert Live(volume).modes() == {writer.initiator: "ro", reader.initiator: "ro"}
    assert write_protected(writer.login(fenced["connection_info"]))
    assert reading.read(0) == block("before")
    other = f"/v3/attachments/{theirs['id']}"
    status, answer = api.call("PUT", other, {"attachment": {"mode": "rw"}})
    assert status == 409, answer
    promoted = api.must("PUT", path, {"attachment": {"mode": "rw"}})["attachment"]
    writer.login(promoted["connection_info"]).write(0, block("after"))
    assert reading.read(0) == block("after"), "its session has not ended"
    api.must("PUT", metadata, {"metadata": {}})
