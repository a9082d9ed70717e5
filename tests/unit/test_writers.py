# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The writers policy as text, and what it decides on rows."""

from __future__ import annotations

import pytest

from lunshare.agent.model.records import Attachment, Mode
from lunshare.agent.model.states import AttachStatus
from lunshare.agent.service.attachments import writers_policy
from lunshare.drivers import writers
from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.writers import MAX_WRITERS, WRITERS, WritersPolicy

SERVER = "8d5d26c8-5d8d-4a25-8ac1-0c7f6a3f4d01"
OTHER = "8d5d26c8-5d8d-4a25-8ac1-0c7f6a3f4d02"
ALPHA, BETA = "iqn.1994-05.com.example:alpha", "iqn.1994-05.com.example:beta"


def row(
    name: str,
    mode: Mode | None = Mode.RW,
    server: str | None = None,
    former: str | None = None,
) -> Attachment:
    """An attachment of the host of that name."""
    return Attachment(
        f"of {name}",
        "volume",
        AttachStatus.ATTACHED,
        mode,
        server,
        attached_host=name,
        initiator=f"iqn.1994-05.com.example:{name}",
        former_initiator=former,
    )


def only(metadata: dict[str, str]) -> WritersPolicy:
    """The policy of a volume without a type."""
    policy = writers.policy(metadata)
    assert policy is not None
    return policy


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        (" , ", []),
        (f"{SERVER.upper()}", [SERVER]),
        (
            "Node-1.example.com, iqn.1994-05.com.Example:Alpha",
            ["node-1.example.com", ALPHA],
        ),
        ("c b,a B", ["c", "b", "a"]),
    ],
)
def test_a_list_has_names_between_commas_or_spaces(text: str, names: list[str]) -> None:
    assert list(writers.parse_writers(text)) == names


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (WRITERS, "iqn.", "give an iSCSI name"),
        (WRITERS, "a;b", "names of hosts"),
        (WRITERS, "*", "names of hosts"),
        (WRITERS, "h\u00f6st", "names of hosts"),
        (WRITERS, ",".join(f"host{n}" for n in range(10_000)), "at most 255"),
        (MAX_WRITERS, "", "whole number"),
        (MAX_WRITERS, "-1", "whole number"),
        (MAX_WRITERS, "two", "whole number"),
        (MAX_WRITERS, "1.0", "whole number"),
        (MAX_WRITERS, "\u0662", "whole number"),
        (MAX_WRITERS, "1001", "0 to 1000"),
    ],
)
def test_a_policy_without_meaning_is_named_by_its_key_and_lets_nobody_write(
    key: str, text: str, why: str
) -> None:
    with pytest.raises(InvalidValue, match=why) as raised:
        writers.check({key: text}, "metadata")
    assert str(raised.value).startswith(f"metadata {key} ")
    assert len(str(raised.value)) < 300
    policy = writers.policy({key: text})
    assert policy is not None
    assert writers_policy.refusal(policy, row("alpha"), lambda: ()) is not None


def test_metadata_only_narrows_the_type() -> None:
    specs = {WRITERS: "alpha beta", MAX_WRITERS: "2"}
    assert writers.policy({}, {}) is None
    assert writers.policy({}, specs) == WritersPolicy((("alpha", "beta"),), 2)
    wider = writers.policy({WRITERS: "beta gamma", MAX_WRITERS: "9"}, specs)
    assert wider is not None
    assert wider.most == 2
    assert [wider.names(name) for name in ("alpha", "beta", "gamma")] == [
        False,
        True,
        False,
    ]
    # A server of the volume's list, on a host of the type's.
    both = writers.policy({WRITERS: SERVER}, specs)
    assert both is not None
    assert both.names(SERVER, "alpha", ALPHA)
    assert not both.names(SERVER, "gamma")
    assert not both.names(OTHER, "alpha")


@pytest.mark.parametrize("listed", [SERVER, "alpha", ALPHA])
def test_a_writer_is_named_as_server_host_or_initiator(listed: str) -> None:
    policy = only({WRITERS: listed})
    assert writers_policy.refusal(policy, row("alpha", server=SERVER), list) is None
    why = writers_policy.refusal(policy, row("beta", server=OTHER), list)
    assert why is not None
    assert "attachment mode rw" in why.message
    assert f"{OTHER}, beta, {BETA}" in why.message


def test_a_server_that_migrates_is_one_writer() -> None:
    policy = only({MAX_WRITERS: "1"})
    there = [row("alpha", server=SERVER)]
    assert (
        writers_policy.refusal(policy, row("beta", server=SERVER), lambda: there)
        is None
    )
    why = writers_policy.refusal(policy, row("gamma", server=OTHER), lambda: there)
    assert why is not None
    assert "of alpha" in why.message


def test_its_own_row_and_its_other_row_do_not_count_against_an_initiator() -> None:
    policy = only({MAX_WRITERS: "1"})
    there = [row("alpha")]
    assert writers_policy.refusal(policy, there[0], lambda: there) is None
    assert writers_policy.refusal(policy, row("alpha"), lambda: there) is None


def test_an_access_that_a_connector_replaces_counts_until_it_is_closed() -> None:
    policy = only({MAX_WRITERS: "1"})
    there = [row("beta", Mode.RO, former=ALPHA)]
    assert writers_policy.refusal(policy, row("gamma"), lambda: there) is not None


def test_a_new_policy_excludes_who_is_not_named_or_everyone_of_too_many() -> None:
    alpha, beta = row("alpha"), row("beta")
    named = writers.policy({WRITERS: "alpha"})
    assert named is not None
    assert writers_policy.excluded(named, [alpha, beta]) == [beta]
    assert writers_policy.excluded(named, [row("alpha", former=BETA)])
    one, two = (writers.policy({MAX_WRITERS: text}) for text in "12")
    assert one is not None
    assert two is not None
    assert writers_policy.excluded(one, [alpha, beta]) == [alpha, beta]
    assert writers_policy.excluded(two, [alpha, beta]) == []


def test_a_sentence_names_some_of_many() -> None:
    assert writers.among("abc") == "a, b, c"
    assert writers.among("abcdefg", 2) == "a, b and 5 more"
