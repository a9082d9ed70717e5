# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""PUT /attachments/{id} with a mode: what the answer says, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.drivers.errors import DeadlineExceeded
from tests.api.calls import Api
from tests.stands.node import Node, connector

HANGS = DeadlineExceeded("a write in progress", 1.0)


@pytest.fixture
def attached(api: Api) -> dict[str, Any]:
    """An attachment that is rw."""
    fields = {"volume_uuid": api.volume()["id"], "connector": connector("alpha")}
    made = api("POST", "/attachments", {"attachment": fields})["attachment"]
    assert made["attach_mode"] == "rw"
    return dict(made)


def changed(api: Api, row: dict[str, Any], status: int = 200, **more: str) -> Any:
    path = f"/attachments/{row['id']}"
    return api("PUT", path, {"attachment": more}, status=status)["attachment"]


def test_the_answer_says_that_the_host_is_fenced_and_what_it_has_to_do(
    api: Api, attached: dict[str, Any]
):
    reader = changed(api, attached, mode="ro")
    assert reader["fence"] == "fenced"
    assert reader["attach_mode"] == reader["connection_info"]["access_mode"] == "ro"
    assert "iscsiadm -m session --rescan" in reader["host_must"]
    assert "fence" not in api("GET", f"/attachments/{attached['id']}")["attachment"]
    writer = changed(api, attached, mode="rw")
    assert writer["attach_mode"] == "rw"
    assert "fence" not in writer
    assert "remount rw" in writer["host_must"]


def test_immediate_is_202_and_pending(api: Api, attached: dict[str, Any]):
    reader = changed(api, attached, 202, mode="ro", fence="immediate")
    assert reader["fence"] == "fence pending"
    assert "may still land" in reader["fence_reason"]
    assert changed(api, attached, mode="ro", fence="drain")["fence"] == "fenced"


def test_storage_that_hangs_is_202_and_pending(
    api: Api, node: Node, attached: dict[str, Any]
):
    with node.target("api").failures.fail("apply.closed", HANGS):
        reader = changed(api, attached, 202, mode="ro")
    assert reader["fence"] == "fence pending"
    shown = api("GET", f"/attachments/{attached['id']}")["attachment"]
    assert (shown["attach_mode"], shown["fence"]) == ("ro", "fence pending")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "attachment.connector"),
        ({"mode": "wo"}, "attachment.mode: give"),
        ({"mode": None}, "attachment.mode"),
        ({"mode": "rw", "fence": "immediate"}, "attachment.fence is for the mode ro"),
        ({"mode": "ro", "fence": "later"}, "attachment.fence: give drain or immediate"),
        (
            {"mode": "ro", "connector": connector("b")},
            "attachment.mode is unknown here",
        ),
        ({"fence": "drain"}, "attachment.connector"),
    ],
)
def test_what_makes_no_sense_is_400(
    api: Api, attached: dict[str, Any], fields: dict[str, Any], why: str
):
    path = f"/attachments/{attached['id']}"
    assert why in api.fault(400, "PUT", path, {"attachment": fields})


def test_it_is_announced(api: Api):
    found = api("GET", "/extensions/lunshare-attachment-mode")["extension"]
    assert "attachment.mode" in found["description"]
