# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""From Cinder's rows to the wanted access, also before Cinder has written them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lunshare.cinder import chap_secrets, wanted_access
from lunshare.cinder.unfinished import DirectOpening, Opening, Unfinished
from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts
from lunshare.drivers import chap_text, writers
from lunshare.drivers.errors import DiskBusy, InvalidValue
from lunshare.drivers.values import Auth, Mode
from lunshare.drivers.writers import MAX_WRITERS, WRITERS

ID = "0a1b2c3d-0000-4000-8000-000000000001"
AUTH = chap_secrets.new_provider_auth()
ONE, TWO = "iqn.1994-05.com.example:one", "iqn.1994-05.com.example:two"


def row(
    name: str,
    initiator: str = ONE,
    mode: str | None = "rw",
    status: str = "attached",
    sent: dict[str, Any] | None = None,
) -> AttachmentRow:
    connector = {"initiator": initiator, **(sent or {})}
    return AttachmentRow(name, status, mode, connector)


def hosts(*rows: AttachmentRow, **more: Any) -> VolumeHosts:
    return VolumeHosts(ID, AUTH, rows, **more)


def modes(found: VolumeHosts) -> dict[str, str]:
    return {name: str(c.mode) for name, c in wanted_access.wanted(found).items()}


@pytest.mark.parametrize(
    ("stored", "sent", "mode"),
    [
        ("rw", {}, "rw"),
        ("ro", {}, "ro"),
        ("ro", {"mode": "rw"}, "ro"),
        ("null", {}, "rw"),
        ("null", {"mode": "ro"}, "ro"),
        ("null", {"mode": None}, "rw"),
        (None, {}, "ro"),
        (None, {"mode": "rw"}, "ro"),
        ("other", {}, "ro"),
    ],
)
def test_mode_is_what_cinder_stored_and_else_read_only(
    stored: str | None, sent: dict[str, Any], mode: str
) -> None:
    assert modes(hosts(row("a", mode=stored, sent=sent))) == {ONE: mode}


@pytest.mark.parametrize(
    "status", ["reserved", "error_attaching", "error_detaching", "detached", "deleted"]
)
def test_attachment_of_another_status_wants_nothing(status: str) -> None:
    assert modes(hosts(row("a", status=status), row("b", TWO))) == {TWO: "rw"}


def test_names_of_hosts_have_one_form() -> None:
    found = hosts(row("a", ONE.upper()), row("b", ONE))
    assert modes(found) == {ONE: "rw"}
    mounting = AttachmentRow("c", "attached", "rw", {"host": "node-7"})
    (name,) = modes(hosts(mounting))
    assert name.startswith("iqn.2026-11.io.lunshare.host:")


@pytest.mark.parametrize("sent", [{}, {"initiator": "x"}, {"host": ""}])
def test_connector_without_a_name_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"connector\.initiator"):
        wanted_access.name_of(sent)


def test_unknown_mode_in_a_connector_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"connector\.mode 'w'"):
        wanted_access.asked_mode({"mode": "w"})


def test_connection_without_an_attachment_is_wanted() -> None:
    assert modes(hosts(row("a"), direct={TWO: Mode.RO})) == {ONE: "rw", TWO: "ro"}


def test_each_host_of_a_volume_has_its_own_secret() -> None:
    first, second = chap_secrets.of_host(AUTH, ONE), chap_secrets.of_host(AUTH, TWO)
    other = chap_secrets.of_host(chap_secrets.new_provider_auth(), ONE)
    assert first is not None
    assert first == chap_secrets.of_host(AUTH, ONE)
    assert len({each.password for each in (first, second, other) if each}) == 3
    assert (len(first.username), len(first.password)) == (20, 16)
    assert (first.username + first.password).isalnum()
    assert first.username[0].isalpha()
    assert first.password[0].isalpha()
    assert AUTH.split()[1] not in repr(first)


def test_secret_of_a_host_is_the_same_in_every_version() -> None:
    """Cinder has given it to the host, which uses it at each login."""
    found = chap_secrets.of_host(f"lunshare {'0123456789abcdef' * 4}", ONE)
    assert found == Auth("mbMEAhOIJEEjyjwhrFMF", "v5Plpjd0Rbq3qMQ9")


def test_each_number_has_its_own_text() -> None:
    texts = {chap_text.text(number, 2) for number in range(chap_text.count(2))}
    assert len(texts) == chap_text.count(2) == 52 * 62


@pytest.mark.parametrize(
    "stored",
    [None, "", "CHAP user", "CHAP user secret more", AUTH + "0"],
    ids=["none", "empty", "too short", "too many words", "too long"],
)
def test_provider_auth_of_another_form_is_not_a_key(stored: str | None) -> None:
    assert not chap_secrets.is_provider_auth(stored)
    assert chap_secrets.of_host(stored, ONE) is None


def test_hosts_of_a_volume_of_cinders_driver_share_its_secret() -> None:
    stored = "CHAP user secret"
    assert not chap_secrets.is_provider_auth(stored)
    assert chap_secrets.of_host(stored, ONE) == Auth("user", "secret")
    assert chap_secrets.of_host(stored, TWO) == Auth("user", "secret")


def test_host_keeps_the_secret_of_its_attachment() -> None:
    answered = chap_secrets.of_connection(
        {"auth_username": "old", "auth_password": "known"}
    )
    found = wanted_access.wanted(hosts(replace(row("a"), auth=answered), row("b", TWO)))
    assert found[ONE].auth == Auth("old", "known")
    assert found[TWO].auth == chap_secrets.of_host(AUTH, TWO)
    assert chap_secrets.of_connection({"auth_username": "without a secret"}) is None


def test_second_attachment_of_a_host_gets_the_secret_of_the_first() -> None:
    """A host has one session, and one ACL, whatever the volume's key is by now."""
    found = hosts(replace(row("a"), auth=Auth("old", "known")))
    assert wanted_access.connector(found, ONE, Mode.RW, "b").auth == Auth(
        "old", "known"
    )
    assert wanted_access.connector(found, TWO, Mode.RW, "b").auth != Auth(
        "old", "known"
    )


def test_host_without_a_secret_is_found() -> None:
    """CHAP would be switched off for it."""
    unknown = replace(hosts(row("a"), row("b", TWO)), provider_auth=None)
    found = wanted_access.wanted(unknown)
    assert wanted_access.without_secret(found.values()) == [ONE, TWO]
    error = wanted_access.no_secret(ID, [ONE, TWO])
    assert f"no CHAP secret of {ONE}, {TWO}: delete" in str(error)
    answered = replace(row("a"), auth=Auth("old", "known"))
    found = wanted_access.wanted(replace(unknown, rows=(answered,)))
    assert wanted_access.without_secret(found.values()) == []


def test_secret_of_a_volume_is_not_in_a_repr() -> None:
    stored = "CHAP user hidden-word"
    found = replace(hosts(row("a")), provider_auth=stored)
    assert "hidden-word" not in repr(found) + str(found)
    assert "hidden-word" not in repr(chap_secrets.of_host(stored, ONE))


def open_modes(unfinished: Unfinished, found: VolumeHosts) -> dict[str, str]:
    return {name: str(c.mode) for name, c in unfinished.of_volume(found).items()}


def opening_of(found: VolumeHosts, *owners: str) -> Opening:
    access = wanted_access.connector(found, ONE, Mode.RW, "a")
    return Opening(ID, access, "new", frozenset(owners))


def connected(id_: str, connection: str, mode: str | None = "rw") -> AttachmentRow:
    sent = {"initiator": ONE, wanted_access.CONNECTION: connection}
    return AttachmentRow(id_, "attached", mode, sent)


def test_opened_access_counts_before_its_row() -> None:
    unfinished, reserved = (
        Unfinished(),
        hosts(AttachmentRow("a", "reserved", "rw", None)),
    )
    opening = opening_of(reserved, "a")
    unfinished.start_opening(opening)
    assert open_modes(unfinished, reserved) == {ONE: "rw"}
    assert unfinished.end_opening(opening)
    assert not unfinished.end_opening(opening)
    assert open_modes(unfinished, reserved) == {}
    assert open_modes(unfinished, hosts(row("a"))) == {ONE: "rw"}


def test_opening_is_stored_with_its_own_connection_and_a_mode() -> None:
    opening = opening_of(hosts(), "a", "b")
    assert opening.stored(hosts(connected("a", "new")))
    for other in (connected("a", "old"), connected("a", "new", None), row("a")):
        assert not opening.stored(hosts(other))
    assert not opening.deleted(hosts(row("b")))
    assert opening.deleted(hosts(row("c")))


def test_opened_host_keeps_the_secret_of_its_answer() -> None:
    """Two first attaches at once may each make a key, and the last one is stored."""
    unfinished, later = Unfinished(), chap_secrets.new_provider_auth()
    opening = opening_of(hosts(), "a")
    unfinished.start_opening(opening)
    stored = replace(hosts(row("a")), provider_auth=later)
    assert unfinished.of_volume(stored)[ONE].auth == opening.access.auth


def test_an_opening_continues_while_another_attachment_of_its_host_is_detached() -> (
    None
):
    second = AttachmentRow("b", "reserved", "rw", None)
    unfinished, found = Unfinished(), hosts(row("a"), second)
    unfinished.start_opening(opening_of(found, "b"))
    unfinished.start_detach(ID, found.rows[0])
    assert open_modes(unfinished, found) == {ONE: "rw"}
    assert open_modes(unfinished, hosts(second)) == {ONE: "rw"}


def test_a_detach_ends_the_opening_of_its_connection() -> None:
    """A detach right after its attach: the row is stored, and not read yet."""
    second = AttachmentRow("b", "reserved", "rw", None)
    unfinished, found = Unfinished(), hosts(connected("a", "new"), second)
    unfinished.start_opening(opening_of(found, "a", "b"))
    unfinished.start_detach(ID, found.rows[0])
    assert open_modes(unfinished, found) == {}


def test_a_detach_without_a_row_ends_the_openings_of_its_host() -> None:
    found = hosts(AttachmentRow("a", "reserved", "rw", None))
    for name, ended in (("new", True), ("other", False), (None, True)):
        unfinished = Unfinished()
        unfinished.start_opening(opening_of(found, "a"))
        unfinished.cancel_openings(ID, ONE, name)
        assert open_modes(unfinished, found) == ({} if ended else {ONE: "rw"})


def test_an_opening_ends_with_its_attachment() -> None:
    """A volume that is deleted then is not in use."""
    unfinished = Unfinished()
    unfinished.start_opening(opening_of(hosts(), "a"))
    assert open_modes(unfinished, hosts()) == {}
    assert open_modes(unfinished, hosts(row("b", TWO))) == {TWO: "rw"}


@pytest.mark.parametrize("detached", [True, False])
def test_new_connection_is_confirmed_unless_it_has_been_closed(detached: bool) -> None:
    """Connected twice: a detach of the attachment closes both connections."""
    unfinished = Unfinished()
    for name in ("1", "2"):
        unfinished.add_unconfirmed(connected("a", name))
    unfinished.add_unconfirmed(connected("b", "3"))
    if detached:
        unfinished.start_detach(ID, connected("a", "2"))
    found = [unfinished.pop_unconfirmed(name) for name in ("1", "2", "3", "3")]
    assert found == ([None, None, "b", None] if detached else ["a", "a", "b", None])


def test_openings_of_a_deleted_volume_are_forgotten() -> None:
    second = AttachmentRow("b", "reserved", "rw", None)
    unfinished, found = Unfinished(), hosts(row("a", TWO), second)
    unfinished.start_opening(opening_of(found, "b"))
    unfinished.start_detach(ID, found.rows[0])
    unfinished.forget_volume(ID)
    assert open_modes(unfinished, found) == {TWO: "rw"}


def test_direct_opening_is_known_by_what_cinder_does_with_the_answer() -> None:
    before = hosts(row("b", TWO))
    unknown = DirectOpening(ONE, before, {"data": {}})
    direct = DirectOpening(ONE, before, {"data": {"enforce_multipath": False}})
    attachment = DirectOpening(ONE, before, {})
    opened = (unknown, direct, attachment)
    assert [each.is_direct for each in opened] == [False, True, False]
    assert [each.is_attachment for each in opened] == [False, False, True]
    assert attachment.deleted(hosts())
    assert not attachment.deleted(before)


def test_detached_attachment_does_not_count_although_its_row_exists() -> None:
    unfinished, found = Unfinished(), hosts(row("a"), row("b", TWO))
    unfinished.start_detach(ID, found.rows[0])
    assert open_modes(unfinished, found) == {TWO: "rw"}


def test_repeated_detach_leaves_the_other_attachment_of_its_host() -> None:
    unfinished, found = Unfinished(), hosts(connected("a", "1"), connected("b", "2"))
    for _ in range(2):
        unfinished.start_detach(ID, found.rows[0])
        assert open_modes(unfinished, found) == {ONE: "rw"}
    unfinished.start_detach(ID, found.rows[1])
    assert open_modes(unfinished, found) == {}


def test_detach_is_over_when_its_row_is_deleted() -> None:
    unfinished, found = Unfinished(), hosts(row("a"), row("b"))
    unfinished.start_detach(ID, found.rows[0])
    assert unfinished.detached_connections(found) == {"a"}
    left = hosts(row("b"))
    assert open_modes(unfinished, left) == {ONE: "rw"}
    assert unfinished.detached_connections(found) == set()


def test_new_attachment_of_a_host_counts_while_its_last_one_is_detached() -> None:
    unfinished, found = Unfinished(), hosts(row("a"))
    unfinished.start_detach(ID, found.rows[0])
    assert open_modes(unfinished, hosts(row("a"), row("new", mode="ro"))) == {ONE: "ro"}


def test_detached_attachment_counts_when_it_is_connected_again() -> None:
    unfinished, found = Unfinished(), hosts(connected("a", "1"))
    unfinished.start_detach(ID, found.rows[0])
    assert open_modes(unfinished, found) == {}
    assert open_modes(unfinished, hosts(connected("a", "2"))) == {ONE: "rw"}


@pytest.mark.parametrize(
    ("connection", "ending"),
    [({}, ["a", "b", "c"]), ({wanted_access.CONNECTION: "2"}, ["b"])],
)
def test_attachment_that_ends_has_the_connection_of_the_detach(
    connection: dict[str, str], ending: list[str]
) -> None:
    found = hosts(connected("a", "1"), connected("b", "2"), row("c"), row("d", TWO))
    ended = found.rows_ending(ONE, {"initiator": ONE, **connection})
    assert [each.id for each in ended] == ending


def test_detach_without_a_connector_ends_one_direct_connection_at_most() -> None:
    """It ended all: a backup of the volume, and hosts that nobody had named."""
    attached = hosts(row("a"), direct={ONE: Mode.RO, TWO: Mode.RW})
    assert attached.direct_without_name() == ()
    assert hosts(direct={TWO: Mode.RO}).direct_without_name() == (TWO,)
    with pytest.raises(DiskBusy, match=f"{ONE}, {TWO} have connections without an"):
        hosts(direct={TWO: Mode.RO, ONE: Mode.RW}).direct_without_name()
    assert hosts().direct_without_name() == ()


def test_a_host_that_the_policy_has_limited_reads_whatever_cinder_stores() -> None:
    sent = {wanted_access.LIMIT: "ro"}
    assert modes(hosts(row("a", sent=sent), row("b", TWO))) == {ONE: "ro", TWO: "rw"}


@pytest.mark.parametrize(
    ("metadata", "there", "opening", "may"),
    [
        ({}, (), (), True),
        ({WRITERS: "server-1"}, (), (), True),
        ({WRITERS: "host-1"}, (), (), True),
        ({WRITERS: ONE}, (), (), True),
        ({WRITERS: "server-2"}, (), (), False),
        ({WRITERS: ""}, (), (), False),
        ({WRITERS: "a;b"}, (), (), False),
        ({MAX_WRITERS: "none"}, (), (), False),
        ({MAX_WRITERS: "1"}, (), (), True),
        ({MAX_WRITERS: "1"}, (row("b", TWO),), (), False),
        ({MAX_WRITERS: "1"}, (row("b", TWO, "ro"),), (), True),
        ({MAX_WRITERS: "1"}, (row("b", TWO, status="error_detaching"),), (), True),
        ({MAX_WRITERS: "1"}, (), (TWO,), False),
        # A server that migrates.
        ({MAX_WRITERS: "1"}, (replace(row("b", TWO), server="server-1"),), (), True),
    ],
)
def test_the_writers_policy_decides_when_a_host_is_attached(
    metadata: dict[str, str], there: Any, opening: Any, may: bool
) -> None:
    owner = AttachmentRow("a", "reserved", None, None, server="server-1")
    found, sent = hosts(owner, *there), {"initiator": ONE, "host": "host-1"}
    policy = writers.policy(metadata)
    allowed = wanted_access.may_write(policy, found, sent, [owner], opening)
    assert allowed is may


def test_of_several_reservations_each_has_to_be_a_writers() -> None:
    first = AttachmentRow("a", "reserved", None, None, server="server-1")
    second = replace(first, id="b", server="server-2")
    policy, sent = writers.policy({WRITERS: "server-1"}), {"initiator": ONE}
    found = hosts(first, second)
    assert not wanted_access.may_write(policy, found, sent, [first, second], ())
    assert wanted_access.may_write(policy, found, sent, [first], ())


def test_a_direct_connection_that_writes_counts() -> None:
    policy = writers.policy({MAX_WRITERS: "1"})
    found, sent = hosts(direct={TWO: Mode.RW}), {"initiator": ONE}
    assert not wanted_access.may_write(policy, found, sent, [], ())
