# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The wanted access is a pure function of the rows."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from lunshare.agent.model.records import Attachment
from lunshare.agent.model.states import WANTED, AttachStatus
from lunshare.agent.service.attachments import wanted_state
from lunshare.drivers.values import Mode

HOSTS = [f"iqn.1994-05.com.example:host{n}" for n in range(3)]

rows = st.lists(
    st.builds(
        Attachment,
        id=st.uuids().map(str),
        volume_id=st.just("2b3f9a6d-cde8-480b-addc-10b21bef55bb"),
        status=st.sampled_from(AttachStatus),
        mode=st.sampled_from(Mode),
        initiator=st.sampled_from([*HOSTS, None]),
        auth_username=st.just("user"),
        auth_password=st.just("password"),
    ),
    max_size=8,
)


@given(rows)
def test_a_host_has_access_only_while_an_attachment_wants_it(
    found: list[Attachment],
) -> None:
    wanted = {c.initiator for c in wanted_state.list_accesses(found)}
    assert wanted == {r.initiator for r in found if r.initiator and r.status in WANTED}


@given(rows)
def test_a_host_can_write_only_if_its_own_wanted_attachment_is_rw(
    found: list[Attachment],
) -> None:
    for access in wanted_state.list_accesses(found):
        mine = [r for r in found if r.initiator == access.initiator]
        writes = any(r.mode == "rw" and r.status in WANTED for r in mine)
        assert (access.mode is Mode.RW) == writes


@given(rows)
def test_the_rows_of_other_hosts_do_not_change_the_access_of_a_host(
    found: list[Attachment],
) -> None:
    for host in HOSTS:
        mine = [r for r in found if r.initiator == host]
        whole = {c.initiator: c for c in wanted_state.list_accesses(found)}
        assert wanted_state.list_accesses(mine) == tuple(
            filter(None, [whole.get(host)])
        )


def test_an_initiator_gets_its_existing_credentials_again() -> None:
    row = Attachment(
        "a", "v", AttachStatus.ATTACHED, auth_username="u", auth_password="p"
    )
    assert wanted_state.credentials([row]) == ("u", "p")


def test_new_credentials_are_long_and_unique() -> None:
    made = {wanted_state.credentials([]) for _ in range(100)}
    assert len(made) == 100
    for username, password in made:
        assert len(username) == 20
        assert len(password) == 16
        assert set(username + password) <= set(string.ascii_letters + string.digits)


def test_no_credential_can_be_parsed_as_a_number() -> None:
    """None starts with 0x or 0b: tests/system/test_lio_target shows what that does."""
    made = [each for _ in range(1000) for each in wanted_state.credentials([])]
    assert {each[0] for each in made} <= set(string.ascii_letters)
