# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A lease of the mode rw: how it is given, renewed and shown, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.agent import boot_clock
from lunshare.agent.db import attachments
from tests.api.calls import Api
from tests.stands.node import Node, connector
from tests.stands.waiting import until

LEASE = {"ttl": 60, "then": None}


@pytest.fixture
def volume(api: Api) -> str:
    shared = api.type(multiattach="<is> True")["id"]
    return str(api.volume(volume_type=shared)["id"])


@pytest.fixture
def path(api: Api, volume: str) -> str:
    """Of an attachment that is ro."""
    return attached(api, volume, "holder")


def attached(api: Api, volume: str, host: str) -> str:
    fields = {"volume_uuid": volume, "connector": connector(host), "mode": "ro"}
    made = api("POST", "/attachments", {"attachment": fields})["attachment"]
    return f"/attachments/{made['id']}"


def body(mode: str = "rw", **lease: Any) -> dict[str, Any]:
    return {"attachment": {"mode": mode, "lease": lease or LEASE}}


def let_end(node: Node, path: str) -> None:
    with node.assembly.database.writing() as connection:
        row = path.removeprefix("/attachments/")
        attachments.set_values(connection, row, lease_ends=boot_clock.seconds())
    node.services.leases.end_due()
    until(lambda: not node.assembly.jobs.in_progress(), "the end of the lease")


def test_it_is_given_shown_renewed_and_ends(
    api: Api, node: Node, volume: str, path: str
):
    assert "lease" not in api("GET", path)["attachment"]
    given = api("PUT", path, body())["attachment"]
    assert (given["attach_mode"], given["lease"]["status"]) == ("rw", "running")
    assert 50 < given["lease"]["seconds_left"] <= 60
    renewed = api("PUT", f"{path}/lease", {"lease": {"ttl": 300}})["attachment"]
    assert renewed["lease"]["ttl"] == 300
    assert (
        api("PUT", f"{path}/lease", {"lease": {}})["attachment"]["lease"]["ttl"] == 300
    )
    let_end(node, path)
    shown = api("GET", path)["attachment"]
    assert shown["attach_mode"] == "ro"
    ended = shown["lease"]
    assert (ended["status"], ended["seconds_left"]) == ("ended", 0)
    hosts = api("GET", f"/lunshare/hosts?volume_id={volume}")["hosts"]
    assert hosts[0]["lease"] == ended
    assert ended["ended_at"] is not None
    why = api.fault(409, "PUT", f"{path}/lease", {"lease": {}})
    assert "is attaching and has a lease that has ended; when it is ro, give" in why


def test_the_next_of_the_list_follows(api: Api, node: Node, volume: str, path: str):
    metadata = {"metadata": {"lunshare:writers": "holder, heir"}}
    api("POST", f"/volumes/{volume}/metadata", metadata)
    beta = attached(api, volume, "heir")
    api("PUT", path, body(ttl=60, then="next"))
    let_end(node, path)
    assert api("GET", beta)["attachment"]["attach_mode"] == "rw"
    shown = api("GET", f"/volumes/{volume}/handover")["handover"]
    assert (shown["status"], shown["to"]) == ("done", beta.rpartition("/")[2])


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        (
            {"ttl": 0},
            "attachment.lease.ttl: give a whole number of seconds, 1 to 86400",
        ),
        ({"ttl": 86401}, "attachment.lease.ttl: give a whole number of seconds"),
        ({"ttl": 1.5}, "attachment.lease.ttl: give a whole number of seconds"),
        ({"ttl": "60"}, "attachment.lease.ttl: give a whole number of seconds"),
        ({"ttl": True}, "attachment.lease.ttl: give a whole number of seconds"),
        ({"then": "next"}, "attachment.lease.ttl: give a whole number of seconds"),
        ({"ttl": 60, "then": "beta"}, "attachment.lease.then: give next, or null"),
        ({"ttl": 60, "who": "beta"}, "attachment.lease.who is unknown here"),
    ],
)
def test_what_is_no_lease(api: Api, path: str, lease: dict[str, Any], why: str):
    assert why in api.fault(400, "PUT", path, body(**lease))
    assert api("GET", path)["attachment"]["attach_mode"] == "ro"


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        ({"ttl": 0}, "lease.ttl: give a whole number of seconds, 1 to 86400"),
        ({"then": "next"}, "lease.then is unknown here"),
    ],
)
def test_what_is_no_renewal(api: Api, path: str, lease: dict[str, Any], why: str):
    api("PUT", path, body())
    assert why in api.fault(400, "PUT", f"{path}/lease", {"lease": lease})
    assert api("GET", path)["attachment"]["lease"]["ttl"] == 60


def test_who_has_no_lease(api: Api, node: Node, volume: str, path: str):
    why = api.fault(400, "PUT", path, body("ro"))
    assert "attachment.lease: only the mode rw has a lease" in why
    assert "has no lease" in api.fault(409, "PUT", f"{path}/lease", {"lease": {}})
    why = api.fault(409, "PUT", path, body(ttl=60, then="next"))
    assert f"lease.then: volume {volume} has no lunshare:writers" in why
    reserved = api("POST", "/attachments", {"attachment": {"volume_uuid": volume}})
    reservation = f"/attachments/{reserved['attachment']['id']}"
    assert "is reserved" in api.fault(409, "PUT", reservation, body())
    nobody = "/attachments/00000000-0000-0000-0000-000000000000"
    for each in (nobody, f"{nobody}/lease"):
        asked = {"lease": {}} if each.endswith("lease") else body()
        assert "could not be found" in api.fault(404, "PUT", each, asked)
