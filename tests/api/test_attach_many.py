# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The actions lunshare:attach and lunshare:detach: many hosts of a volume at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.calls import Api
from tests.stands.node import connector

NOBODY = "6f2d5ac8-bbd8-4a8b-a1f1-b67e37d0b4d1"


@pytest.fixture
def path(api: Api) -> str:
    shared = api.type(multiattach="<is> True")["id"]
    return f"/volumes/{api.volume(volume_type=shared)['id']}/action"


def asked(*hosts: Any, **more: Any) -> dict[str, Any]:
    return {"lunshare:attach": {"key": "k", "hosts": list(hosts), "mode": "ro", **more}}


def test_hosts_are_attached_and_detached_together(api: Api, path: str):
    body = asked(connector("alpha"), connector("beta"))
    made = api("POST", path, body)["attachments"]
    infos = [row["connection_info"] for row in made]
    assert len({info["auth_password"] for info in infos}) == 2
    assert [info["attachment_id"] for info in infos] == [row["id"] for row in made]
    assert {row["attach_mode"] for row in made} == {"ro"}
    for row in made:
        shown = api("GET", f"/attachments/{row['id']}")["attachment"]
        assert shown.pop("live")["allowed"] == row["attach_mode"]
        assert shown == row
    assert api("POST", path, body)["attachments"] == made
    volume = api("GET", path.removesuffix("/action"))["volume"]
    assert (volume["status"], len(volume["attachments"])) == ("in-use", 2)
    gone = {"lunshare:detach": {"attachments": [made[0]["id"].upper()]}}
    left = api("POST", path, gone)["attachments"]
    assert [row["id"] for row in left] == [made[1]["id"]]
    gone = {"lunshare:detach": {"attachments": [made[1]["id"]] * 2}}
    assert api("POST", path, gone)["attachments"] == []
    assert "is detached since" in api.fault(409, "POST", path, body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (asked(), "lunshare:attach.hosts: give a list of 1 to 500 connectors"),
        (
            asked(*[connector(f"h{number}") for number in range(501)]),
            "lunshare:attach.hosts: give a list of 1 to 500 connectors",
        ),
        (asked(connector("a"), {}), "lunshare:attach.hosts.1: give the connector"),
        (asked(connector("a"), "b"), "lunshare:attach.hosts.1: give the connector"),
        (
            asked(connector("a"), {"initiator": "b", "host": "b"}, connector("c")),
            "lunshare:attach.hosts.1: connector.initiator",
        ),
        (
            asked(connector("a"), {"host": "b"}),
            "lunshare:attach.hosts.1, host b: connector.initiator is missing",
        ),
        (asked(connector("a"), connector("a")), "lunshare:attach.hosts.1: its init"),
        (asked(connector("a"), mode="wo"), "lunshare:attach.mode: give rw or ro"),
        (asked(connector("a"), key=""), "lunshare:attach.key: give a text of 1 to 255"),
        ({"lunshare:attach": {"hosts": [connector("a")]}}, "lunshare:attach.key: give"),
        ({"lunshare:attach": {"key": "k"}}, "lunshare:attach.hosts: give a list of"),
        (asked(connector("a"), more=1), "lunshare:attach.more is unknown here"),
        (
            {"lunshare:detach": {"attachments": []}},
            "lunshare:detach.attachments: give a list of the ids of 1 to 500",
        ),
        (
            {"lunshare:detach": {"attachments": ["one"]}},
            "lunshare:detach.attachments.0: give a UUID",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_stays(
    api: Api, path: str, body: Any, said: str
):
    assert said in api.fault(400, "POST", path, body)
    assert api("GET", "/attachments")["attachments"] == []


def test_an_attachment_of_another_volume_is_not_detached(api: Api, path: str):
    (made,) = api("POST", path, asked(connector("alpha")))["attachments"]
    for ids in ([made["id"], NOBODY], [NOBODY]):
        body = {"lunshare:detach": {"attachments": ids}}
        assert NOBODY in api.fault(404, "POST", path, body)
    assert len(api("GET", "/attachments")["attachments"]) == 1


def test_it_does_not_exist_before_attachments_have_a_mode(api: Api, path: str):
    assert api.at("3.53").send("POST", path, asked(connector("a"))).status_code == 404
